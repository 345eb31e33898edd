-- Dead letters within their TTL (milliseconds), with their deaths in Unix milliseconds.
-- Parameters: the TTL; the partition bytes of their ids, twice, null for any.
SELECT task_id::text, (extract(epoch FROM died_at) * 1000)::bigint
FROM dead_letter_tasks
WHERE died_at > now() - %s * interval '1 millisecond'
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s));
