-- The next dead letters to replay, the earliest death first: ids, and deaths in Unix milliseconds.
--   {within}, {wanted}, {order}, {limit}   see dead_letters/list.py
SELECT task_id::text, (extract(epoch FROM died_at) * 1000)::bigint
FROM dead_letter_tasks
WHERE {within} AND {wanted}
ORDER BY {order}
LIMIT {limit};
