-- The given tasks (an array of ids) that history has: the columns of TaskRow.
-- The limit forces one look-up for each id, whatever number of ids the planner expects.
SELECT found.*
FROM unnest(%s::uuid[]) AS wanted (task_id)
CROSS JOIN LATERAL (
    SELECT task_id::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, task_type, parameters, attributes,
        record, result, error,
        CASE WHEN tasks.error IS NOT NULL THEN (
            SELECT count(task_events.error) FROM task_events WHERE task_events.task_id = tasks.task_id
        ) ELSE 0 END
    FROM tasks
    WHERE tasks.task_id = wanted.task_id
    LIMIT 1
) AS found;
