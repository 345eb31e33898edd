-- The records of the newest completed tasks: the lowest id, and the limit.
SELECT record
FROM tasks
WHERE state = 'completed' AND task_id >= %s
ORDER BY task_id DESC
LIMIT %s;
