-- As find_tasks, and locks the rows against removal until the transaction ends: an array of ids.
SELECT found.*
FROM unnest(%s::uuid[]) AS wanted (task_id)
CROSS JOIN LATERAL (
    SELECT task_id::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, task_type, parameters, attributes,
        record, result, error
    FROM tasks
    WHERE tasks.task_id = wanted.task_id
    LIMIT 1
    FOR KEY SHARE
) AS found;
