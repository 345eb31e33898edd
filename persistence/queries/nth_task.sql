-- How far back the first {limit} tasks on a path reach: an id, or no row where there are not that many.
--   {index}, {id}, {within}, {order}   see paths.py
--   keys          what to follow the path for
--   first, below  ids, the upper end excluded
SELECT found.task_id
FROM unnest(%(keys)s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT {id} AS task_id FROM {index} WHERE {within} ORDER BY {order} OFFSET {limit} LIMIT 1
) AS found
ORDER BY found.task_id DESC
LIMIT 1;
