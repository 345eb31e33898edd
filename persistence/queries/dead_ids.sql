-- Dead letters inside their time (milliseconds), with when they died in Unix milliseconds.
SELECT task_id::text, (extract(epoch FROM died_at) * 1000)::bigint
FROM dead_letter_tasks
WHERE died_at > now() - %s * interval '1 millisecond'
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s));
