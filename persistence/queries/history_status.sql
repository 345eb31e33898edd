-- How far history is, and how many events it could not take. The count stops at a number nobody lets it come to.
-- Parameters: partition, twice
SELECT c.epoch, c.entry_id, c.now_ms, c.event_count,
       (SELECT count(*) FROM (SELECT 1 FROM parked_events p WHERE p.partition = %s LIMIT 10000) AS parked)
FROM checkpoints c
WHERE c.partition = %s
