-- A page of tasks, newest first: the columns of TaskRow.
--   {found}       the table expression of IndexOrder.found, with its parameters
--   small_bytes   tasks whose parameters, result and error together are larger come without them
--   first, below  ids: they exclude all other partitions of the events
SELECT task_id::text,
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    task_type,
    CASE WHEN is_small THEN parameters END,
    attributes,
    record,
    CASE WHEN is_small THEN result END,
    CASE WHEN is_small THEN error END,
    CASE WHEN found.error IS NOT NULL THEN (
        SELECT count(task_events.error) FROM task_events WHERE task_events.task_id = found.task_id
            AND task_events.task_id >= %(first)s::uuid AND task_events.task_id < %(below)s::uuid
    ) ELSE 0 END
FROM {found} AS found
CROSS JOIN LATERAL (
    SELECT octet_length(parameters) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
        <= %(small_bytes)s AS is_small
) AS size;
