-- Adds dead letters: arrays of ids, deaths in Unix milliseconds, types, priorities, reasons, patterns, messages, and
-- whether they are retriable.
INSERT INTO dead_letter_tasks (task_id, died_at, task_type, priority, reason, pattern, message, retriable)
SELECT task_id, to_timestamp(died_ms / 1000.0), task_type, priority, reason, pattern, message, retriable
FROM unnest(%s::uuid[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::boolean[])
    AS dead (task_id, died_ms, task_type, priority, reason, pattern, message, retriable)
ON CONFLICT (task_id) DO UPDATE
SET died_at = excluded.died_at, priority = excluded.priority, reason = excluded.reason, pattern = excluded.pattern,
    message = excluded.message, retriable = excluded.retriable;
