-- A page of tasks found on one path, newest first: the columns of TaskRow. The offset keeps conditions off the path.
--   {source}, {within}, {order}   the path, {wanted} every condition: see paths.py; {limit} the most rows
--   keys          what to follow the path for
--   first, below  ids, the upper end excluded
--   max_bytes     of parameters, results and errors together; whatever is beyond has NULL for parameters
SELECT task_id::text,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    task_type,
    CASE WHEN bytes_before < %(max_bytes)s THEN parameters END,
    attributes,
    record,
    CASE WHEN bytes_before < %(max_bytes)s THEN result END,
    CASE WHEN bytes_before < %(max_bytes)s THEN error END
FROM (
    SELECT found.*, sum(bytes) OVER (ORDER BY found.task_id DESC) - bytes AS bytes_before
    FROM unnest(%(keys)s::text[]) AS key
    CROSS JOIN LATERAL (
        SELECT tasks.*,
            octet_length(parameters) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0) AS bytes
        FROM (SELECT tasks.* FROM {source} WHERE {within} ORDER BY {order} OFFSET 0) AS tasks
        WHERE {wanted}
        LIMIT {limit}
    ) AS found
) AS page
ORDER BY page.task_id DESC
LIMIT {limit};
