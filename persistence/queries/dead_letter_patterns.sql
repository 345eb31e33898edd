-- The patterns of present dead letters, the most frequent first: the columns of Pattern.
--   ttl_ms           deaths within this time
--   new_within_ms    a pattern first seen within this time is new
--   limit            the most rows
SELECT seen.pattern, seen.task_type, seen.reason, seen.message, dead.count,
    (extract(epoch FROM seen.first_seen) * 1000)::bigint,
    (extract(epoch FROM seen.last_seen) * 1000)::bigint,
    dead.retriable_count,
    seen.first_seen > clock_timestamp() - %(new_within_ms)s * interval '1 millisecond'
FROM dead_letter_patterns AS seen
CROSS JOIN LATERAL (
    SELECT count(*) AS count, count(*) FILTER (WHERE retriable) AS retriable_count
    FROM dead_letter_tasks AS dead
    WHERE (dead.pattern, dead.died_at) >= (seen.pattern, now() - %(ttl_ms)s * interval '1 millisecond')
      AND (dead.pattern, dead.died_at) <= (seen.pattern, 'infinity')
) AS dead
WHERE seen.last_seen >= now() - %(ttl_ms)s * interval '1 millisecond' AND dead.count > 0
ORDER BY dead.count DESC, seen.last_seen DESC, seen.pattern
LIMIT %(limit)s;
