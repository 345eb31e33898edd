-- The checkpoint of a partition, and its number of parked events, counted up to 10000 to bound the cost.
-- Parameters: partition, twice
SELECT c.epoch, c.entry_id, c.now_ms, c.event_count,
       (SELECT count(*) FROM (SELECT 1 FROM parked_events p WHERE p.partition = %s LIMIT 10000) AS parked)
FROM checkpoints c
WHERE c.partition = %s
