-- Those of these tasks (an array of ids) that were purged: id, version, and when the purged life was created.
SELECT task_id::text, version, created_ms
FROM tombstones
WHERE task_id = ANY (%s::uuid[]);
