-- Where the tasks in these states are.
SELECT task_id::text, state, version
FROM tasks
WHERE state = ANY (%s);
