-- The tasks in these states, with all columns that a rebuild needs.
-- Parameters: the states; the partition bytes of their ids, twice, null for any.
SELECT task_id::text, task_type, parameters, attributes, record, error IS NOT NULL
FROM tasks
WHERE state = ANY (%s)
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s));
