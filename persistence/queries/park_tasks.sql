-- Parks tasks whose rows cannot be restored, as if PostgreSQL had refused their last event. Each is parked once.
--   partition, ids, records as the store had them, the error of each
INSERT INTO parked_events (partition, epoch, entry_id, now_ms, task_id, version, record, problem)
SELECT mine.partition, tasks.epoch, '0-0', (extract(epoch FROM latest.at) * 1000)::bigint, tasks.task_id::text,
    tasks.version, skipped.record, skipped.problem
FROM (SELECT %s::smallint AS partition) AS mine
CROSS JOIN unnest(%s::uuid[], %s::bytea[], %s::text[]) AS skipped (task_id, record, problem)
JOIN tasks USING (task_id)
LEFT JOIN task_events AS latest USING (task_id, epoch, version)
WHERE NOT EXISTS (
    SELECT FROM parked_events AS earlier
    WHERE earlier.partition = mine.partition AND earlier.task_id = skipped.task_id::text
);
