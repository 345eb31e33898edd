-- How far back the next tasks of each of several index scans reach: an array of ids, null for a scan with too few.
--   {reaches}     see search.py: one for each scan
SELECT ARRAY[{reaches}]::uuid[];
