-- How many dead letters match, and when the last of them died, in Unix milliseconds or null.
--   {within}, {wanted}   see dead_letters/list.py
SELECT count(*), (extract(epoch FROM max(died_at)) * 1000)::bigint
FROM dead_letter_tasks
WHERE {within} AND {wanted};
