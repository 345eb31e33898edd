-- The checkpoint of a partition of the queue (first parameter).
SELECT epoch, entry_id, now_ms, event_count
FROM checkpoints
WHERE partition = %s;
