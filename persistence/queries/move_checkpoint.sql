-- Moves the checkpoint forward by one batch, unless another replicator moved it.
--   partition, epoch; before, after: entry ids; now_ms: store's clock; added: events in the batch
UPDATE checkpoints
SET entry_id = %(after)s, now_ms = greatest(now_ms, %(now_ms)s), event_count = event_count + %(added)s, moved_at = clock_timestamp()
WHERE partition = %(partition)s AND epoch = %(epoch)s AND entry_id = %(before)s;
