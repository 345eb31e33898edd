-- How far a partition of the queue (first parameter) is replicated.
SELECT epoch, entry_id, now_ms, event_count
FROM checkpoints
WHERE partition = %s;
