-- Where the tasks in these states are.
-- Parameters: the states; which partitions their ids may say, twice, null for any.
SELECT task_id::text, state, version
FROM tasks
WHERE state = ANY (%s)
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s));
