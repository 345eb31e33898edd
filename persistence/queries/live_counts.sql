-- Tasks by state, of the states in the array.
-- Parameters: the states; which partitions their ids may say, twice, null for any.
SELECT state, count(*)
FROM tasks
WHERE state = ANY (%s)
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s))
GROUP BY state;
