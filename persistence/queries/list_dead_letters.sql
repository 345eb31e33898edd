-- A page of dead letters, the latest death first: death in Unix milliseconds, pattern, message, whether it is retriable,
-- and the columns of TaskRow.
--   {within}, {wanted}, {order}, {limit}   see dead_letters/list.py
--   small_bytes   tasks whose parameters and error together are larger come without them
SELECT (extract(epoch FROM dead.died_at) * 1000)::bigint, dead.pattern, dead.message, dead.retriable, task.*
FROM (SELECT * FROM dead_letter_tasks WHERE {within} AND {wanted} ORDER BY {order} LIMIT {limit}) AS dead
CROSS JOIN LATERAL (
    SELECT task_id::text,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
        task_type,
        CASE WHEN octet_length(parameters) + coalesce(octet_length(error), 0) <= %(small_bytes)s THEN parameters END,
        attributes,
        record,
        NULL::text,
        CASE WHEN octet_length(parameters) + coalesce(octet_length(error), 0) <= %(small_bytes)s THEN error END,
        CASE WHEN tasks.error IS NOT NULL THEN (
            SELECT count(task_events.error) FROM task_events WHERE task_events.task_id = tasks.task_id
        ) ELSE 0 END
    FROM tasks
    WHERE tasks.task_id = dead.task_id
    LIMIT 1
) AS task
ORDER BY dead.died_at DESC, dead.task_id DESC;
