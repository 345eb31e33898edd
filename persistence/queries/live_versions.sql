-- State and version of the tasks in these states.
-- Parameters: the states; the partition bytes of their ids, twice, null for any.
SELECT task_id::text, state, version
FROM tasks
WHERE state = ANY (%s)
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s));
