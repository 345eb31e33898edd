-- Everything a rebuild needs of the tasks in these states.
SELECT task_id::text, task_type, parameters, attributes, record, error IS NOT NULL
FROM tasks
WHERE state = ANY (%s);
