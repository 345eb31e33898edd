-- How many tasks on a path are wanted, and whether that is all: at most {limit} are looked at for each key.
--   {source}, {within}, {order}, {wanted}   see paths.py
--   keys          what to follow the path for
--   first, below  ids, the upper end excluded
SELECT coalesce(sum(wanted), 0)::bigint, coalesce(bool_and(seen < {limit}), true)
FROM unnest(%(keys)s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE {wanted}) AS wanted, count(*) AS seen
    FROM (SELECT tasks.* FROM {source} WHERE {within} ORDER BY {order} LIMIT {limit}) AS tasks
) AS counted;
