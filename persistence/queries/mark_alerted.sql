-- Ways to die that are news: never told of, or with twice the deaths and at least so many more. Telling is noted in the
-- same statement, and a row another monitor is at is left to it: each is told once.
--   surge_count    deaths more than at the last telling
WITH news AS (
    SELECT pattern, told_count FROM dead_letter_patterns
    WHERE told_count = 0 OR death_count >= greatest(told_count * 2, told_count + %(surge_count)s)
    ORDER BY pattern
    FOR UPDATE SKIP LOCKED
)
UPDATE dead_letter_patterns AS seen
SET told_count = seen.death_count
FROM news
WHERE seen.pattern = news.pattern
RETURNING seen.pattern, seen.task_type, seen.reason, seen.message, seen.death_count, news.told_count;
