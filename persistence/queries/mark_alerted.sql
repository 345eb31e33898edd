-- Patterns that need an alert: new ones, and those with twice the deaths of the last alert and `surge_count` more. The
-- statement also records the alert, and skips rows that another monitor has locked, so each alert is sent once.
--   surge_count    the least number of deaths since the last alert
-- The column `alerted_count` holds the deaths at the last alert.
WITH due AS (
    SELECT pattern, alerted_count FROM dead_letter_patterns
    WHERE alerted_count = 0 OR death_count >= greatest(alerted_count * 2, alerted_count + %(surge_count)s)
    ORDER BY pattern
    FOR UPDATE SKIP LOCKED
)
UPDATE dead_letter_patterns AS seen
SET alerted_count = seen.death_count
FROM due
WHERE seen.pattern = due.pattern
RETURNING seen.pattern, seen.task_type, seen.reason, seen.message, seen.death_count, due.alerted_count;
