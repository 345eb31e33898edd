-- The present epoch ends where history is, and the next begins there.
--   next epoch, partition, next epoch
UPDATE checkpoints SET epoch = %s, moved_at = now() WHERE partition = %s AND epoch < %s;
