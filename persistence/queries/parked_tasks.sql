-- Tasks with parked events, of one partition, the earliest first: id, first and last version, number of events, when the
-- first was parked in Unix milliseconds, and its error.
--   partition, how many at most
SELECT task_id, min(version), max(version), count(*), (extract(epoch FROM min(parked_at)) * 1000)::bigint,
    (array_agg(problem ORDER BY parked_id))[1]
FROM parked_events
WHERE partition = %s
GROUP BY task_id
ORDER BY min(parked_id)
LIMIT %s;
