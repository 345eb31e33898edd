-- The errors of the attempts of these tasks (an array of ids), the latest last.
SELECT task_id::text, attempt, error
FROM task_events
WHERE task_id = ANY (%s::uuid[]) AND error IS NOT NULL
ORDER BY task_id, epoch, version;
