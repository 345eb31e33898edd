-- Where these tasks are.
SELECT task_id::text, state, version
FROM tasks
WHERE task_id = ANY (%s::uuid[]);
