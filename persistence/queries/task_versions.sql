-- State and version of these tasks (an array of ids).
SELECT task_id::text, state, version
FROM tasks
WHERE task_id = ANY (%s::uuid[]);
