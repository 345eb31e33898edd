-- Deletes finished tasks: an array of ids, and the terminal states. Returns ids, idempotency as in records, types, states,
-- and the values of their tombstones: epoch, version, and creation in Unix milliseconds.
DELETE FROM tasks
WHERE task_id = ANY (%s::uuid[]) AND state = ANY (%s::text[])
RETURNING task_id::text, coalesce(idempotency, ''), task_type, state, epoch, version, (extract(epoch FROM created_at) * 1000)::bigint;
