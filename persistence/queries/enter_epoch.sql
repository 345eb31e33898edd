-- Begins a new epoch, or the first.
--   partition, epoch, entry id, store's clock in Unix milliseconds, events so far
INSERT INTO checkpoints (partition, epoch, entry_id, now_ms, event_count)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (partition) DO UPDATE
SET epoch = excluded.epoch, entry_id = excluded.entry_id, now_ms = greatest(checkpoints.now_ms, excluded.now_ms), moved_at = now()
WHERE checkpoints.epoch < excluded.epoch;
