-- How many tasks of an index scan match, and whether the count is exact: at most {limit} rows are read for each key.
--   {source}, {within}, {order}, {wanted}   see index_scan.py
--   keys          the keys to scan for
--   first, below  ids, the upper end excluded
SELECT coalesce(sum(wanted), 0)::bigint, coalesce(bool_and(seen < {limit}), true)
FROM unnest(%(keys)s::text[]) AS key
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE {wanted}) AS wanted, count(*) AS seen
    FROM (SELECT tasks.* FROM {source} WHERE {within} ORDER BY {order} LIMIT {limit}) AS tasks
) AS counted;
