-- Type and state of the ended ones of these tasks: an array of ids, and the terminal states.
SELECT task_id::text, task_type, state
FROM tasks
WHERE task_id = ANY (%s::uuid[]) AND state = ANY (%s);
