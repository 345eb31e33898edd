-- Everything a repair needs of these tasks.
SELECT task_id::text, task_type, parameters, attributes, record, error IS NOT NULL
FROM tasks
WHERE task_id = ANY (%s::uuid[]);
