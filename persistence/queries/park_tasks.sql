-- Tasks whose rows cannot be put back, as if their last event could not have been written. Each is parked once.
--   partition, ids, records as the store had them, what is wrong with each
INSERT INTO parked_events (partition, epoch, entry_id, now_ms, task_id, version, record, problem)
SELECT mine.partition, tasks.epoch, '0-0', (extract(epoch FROM latest.at) * 1000)::bigint, tasks.task_id::text,
    tasks.version, left_out.record, left_out.problem
FROM (SELECT %s::smallint AS partition) AS mine
CROSS JOIN unnest(%s::uuid[], %s::bytea[], %s::text[]) AS left_out (task_id, record, problem)
JOIN tasks USING (task_id)
LEFT JOIN task_events AS latest USING (task_id, epoch, version)
WHERE NOT EXISTS (
    SELECT FROM parked_events AS known
    WHERE known.partition = mine.partition AND known.task_id = left_out.task_id::text
);
