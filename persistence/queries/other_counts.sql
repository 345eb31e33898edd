-- Counts dead letters and idempotency keys within their TTLs (two spans in milliseconds), and tasks with parked events
-- (a partition).
SELECT
    (SELECT count(*) FROM dead_letter_tasks WHERE died_at > now() - %s * interval '1 millisecond'),
    (SELECT count(*) FROM tasks WHERE idempotency IS NOT NULL AND created_at > now() - %s * interval '1 millisecond'),
    (SELECT count(DISTINCT task_id) FROM parked_events WHERE partition = %s);
