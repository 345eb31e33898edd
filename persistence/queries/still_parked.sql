-- The tasks among these (partition, an array of ids) that have parked events.
SELECT DISTINCT task_id
FROM parked_events
WHERE partition = %s AND task_id = ANY (%s::text[]);
