-- How far back the next tasks on each of several paths reach: an array of ids, with nulls where a path has too few.
--   {reaches}     see searching.py: one for each path
SELECT ARRAY[{reaches}]::uuid[];
