-- A page of what is dead now, the latest death first: the columns of DeadLetterRow.
--   {within}, {wanted}, {order}, {limit}   see dead_letters.py
--   max_bytes   of parameters and errors together; whatever is beyond has NULL for parameters
SELECT (extract(epoch FROM dead.died_at) * 1000)::bigint, dead.pattern, dead.message, dead.retriable,
    task.task_id::text,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    task.task_type,
    CASE WHEN dead.bytes_before < %(max_bytes)s THEN task.parameters END,
    task.attributes,
    task.record,
    NULL,
    CASE WHEN dead.bytes_before < %(max_bytes)s THEN task.error END
FROM (
    SELECT dead_letter_tasks.*, sum(bytes) OVER newest_first - bytes AS bytes_before
    FROM (SELECT * FROM dead_letter_tasks WHERE {within} AND {wanted} ORDER BY {order} LIMIT {limit}) AS dead_letter_tasks
    CROSS JOIN LATERAL (
        SELECT octet_length(parameters) + coalesce(octet_length(error), 0) AS bytes
        FROM tasks WHERE tasks.task_id = dead_letter_tasks.task_id LIMIT 1
    ) AS size
    WINDOW newest_first AS (ORDER BY died_at DESC, dead_letter_tasks.task_id DESC)
) AS dead
CROSS JOIN LATERAL (SELECT * FROM tasks WHERE tasks.task_id = dead.task_id LIMIT 1) AS task
ORDER BY dead.died_at DESC, dead.task_id DESC;
