-- What the attempts of these tasks failed with, the latest last.
SELECT task_id::text, attempt, error
FROM task_events
WHERE task_id = ANY (%s::uuid[]) AND error IS NOT NULL
ORDER BY task_id, epoch, version;
