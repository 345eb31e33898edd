-- Adds tombstones of purged tasks: arrays of ids, epochs, versions, and creation in Unix milliseconds.
INSERT INTO tombstones (task_id, epoch, version, created_ms)
SELECT * FROM unnest(%s::uuid[], %s::integer[], %s::integer[], %s::bigint[])
ON CONFLICT (task_id) DO UPDATE
SET epoch = excluded.epoch, version = excluded.version, purged_at = excluded.purged_at,
    created_ms = greatest(tombstones.created_ms, excluded.created_ms);
