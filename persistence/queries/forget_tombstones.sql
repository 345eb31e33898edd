-- Deletes tombstones that are a day old.
DELETE FROM tombstones
WHERE purged_at < now() - interval '1 day';
