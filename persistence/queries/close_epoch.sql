-- Ends the present epoch at the checkpoint, where the next one begins.
--   next epoch, partition, next epoch
UPDATE checkpoints SET epoch = %s, moved_at = now() WHERE partition = %s AND epoch < %s;
