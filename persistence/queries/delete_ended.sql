-- Finished tasks: an array of ids, and the states that count as finished. Gives ids, idempotency as records have it, types
-- and states, and what their tombstones say: epoch, version, and when they were created in Unix milliseconds.
DELETE FROM tasks
WHERE task_id = ANY (%s::uuid[]) AND state = ANY (%s::text[])
RETURNING task_id::text, coalesce(idempotency, ''), task_type, state, epoch, version, (extract(epoch FROM created_at) * 1000)::bigint;
