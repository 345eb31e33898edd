-- Deletes patterns without a death for this time (milliseconds).
DELETE FROM dead_letter_patterns
WHERE last_seen < now() - %s * interval '1 millisecond';
