-- Type and state of those of these tasks that ended: an array of ids, and the states.
SELECT task_id::text, task_type, state
FROM tasks
WHERE task_id = ANY (%s::uuid[]) AND state = ANY (%s);
