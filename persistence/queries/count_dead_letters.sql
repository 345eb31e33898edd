-- How many are dead now, and when the last of them died, if any did, in Unix milliseconds.
--   {within}, {wanted}   see dead_letters.py
SELECT count(*), (extract(epoch FROM max(died_at)) * 1000)::bigint
FROM dead_letter_tasks
WHERE {within} AND {wanted};
