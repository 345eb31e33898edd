-- Every transition of a task (its id), in order; instants in Unix milliseconds.
SELECT version, (extract(epoch FROM at) * 1000)::bigint, state, reason, attempt, worker_id, error
FROM task_events
WHERE task_id = %s::uuid
ORDER BY epoch, version;
