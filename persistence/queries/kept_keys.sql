-- Idempotency keys within their TTL (milliseconds), the newest use of a key last. Of several partitions: the keys of the
-- partition's tasks, and keys whose name maps to the partition while their task is in another.
SELECT task_id::text, idempotency, (extract(epoch FROM created_at) * 1000)::bigint
FROM tasks
WHERE idempotency IS NOT NULL AND created_at > now() - %s * interval '1 millisecond'
  AND (%s::int[] IS NULL OR get_byte(uuid_send(task_id), 10) = ANY (%s) OR EXISTS (
    SELECT FROM unnest(%s::int[]) AS number WHERE ('x' || left(idempotency, 12))::bit(48)::bigint %% number = %s))
ORDER BY task_id;
