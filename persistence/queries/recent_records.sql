-- The records of the newest completed tasks: the first id that counts, and how many at most.
SELECT record
FROM tasks
WHERE state = 'completed' AND task_id >= %s
ORDER BY task_id DESC
LIMIT %s;
