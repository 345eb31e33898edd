-- Finished tasks: an array of ids, and the states that count as finished. Gives ids, and idempotency as records have it.
DELETE FROM tasks
WHERE task_id = ANY (%s::uuid[]) AND state = ANY (%s::text[])
RETURNING task_id::text, coalesce(idempotency, '');
