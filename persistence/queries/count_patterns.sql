-- Adds deaths to their patterns: arrays of patterns, types, reasons, messages, first and last death in Unix
-- milliseconds, counts.
INSERT INTO dead_letter_patterns (pattern, task_type, reason, message, first_seen, last_seen, death_count)
SELECT pattern, task_type, reason, message, to_timestamp(first_ms / 1000.0), to_timestamp(last_ms / 1000.0), deaths
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS seen (pattern, task_type, reason, message, first_ms, last_ms, deaths)
ON CONFLICT (pattern) DO UPDATE
SET last_seen = greatest(dead_letter_patterns.last_seen, excluded.last_seen),
    death_count = dead_letter_patterns.death_count + excluded.death_count;
