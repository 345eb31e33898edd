-- The number of tasks in each of these states.
-- Parameters: the states; the partition bytes of their ids, twice, null for any.
SELECT state, count(*)
FROM tasks
WHERE state = ANY (%s)
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s))
GROUP BY state;
