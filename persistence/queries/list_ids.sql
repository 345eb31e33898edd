-- As list_tasks, of the ids alone.
--   {source}, {within}, {order}, {wanted}, {limit}   see paths.py
--   keys          what to follow the path for
--   first, below  ids, the upper end excluded
SELECT found.task_id::text
FROM unnest(%(keys)s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT tasks.task_id
    FROM (SELECT tasks.* FROM {source} WHERE {within} ORDER BY {order} OFFSET 0) AS tasks
    WHERE {wanted}
    LIMIT {limit}
) AS found
ORDER BY found.task_id DESC
LIMIT {limit};
