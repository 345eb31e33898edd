-- These tasks (an array of ids), with all columns that a repair needs.
SELECT task_id::text, task_type, parameters, attributes, record, error IS NOT NULL
FROM tasks
WHERE task_id = ANY (%s::uuid[]);
