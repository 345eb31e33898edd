-- A task by its id: the errors of its last attempts in their order, then the columns of TaskRow.
--   how many errors at most, id
SELECT
    CASE WHEN tasks.error IS NOT NULL THEN (
        SELECT array_agg(last.error ORDER BY last.epoch, last.version)
        FROM (
            SELECT epoch, version, error FROM task_events
            WHERE task_events.task_id = tasks.task_id AND error IS NOT NULL
            ORDER BY epoch DESC, version DESC
            LIMIT %s
        ) AS last
    ) END,
    task_id::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, task_type, parameters, attributes, record,
    result, error,
    CASE WHEN tasks.error IS NOT NULL THEN (
        SELECT count(task_events.error) FROM task_events WHERE task_events.task_id = tasks.task_id
    ) ELSE 0 END
FROM tasks
WHERE task_id = %s::uuid;
