-- Ways to die that nothing died of for so long (milliseconds).
DELETE FROM dead_letter_patterns
WHERE last_seen < now() - %s * interval '1 millisecond';
