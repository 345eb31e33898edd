-- Idempotency keys inside their time (milliseconds), the newest use of one last.
SELECT task_id::text, idempotency, (extract(epoch FROM created_at) * 1000)::bigint
FROM tasks
WHERE idempotency IS NOT NULL AND created_at > now() - %s * interval '1 millisecond'
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s))
ORDER BY task_id;
