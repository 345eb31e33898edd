-- The tombstones of these tasks (an array of ids): id, version, and the creation of the purged task in Unix milliseconds.
SELECT task_id::text, version, created_ms
FROM tombstones
WHERE task_id = ANY (%s::uuid[]);
