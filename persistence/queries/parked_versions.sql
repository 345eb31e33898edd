-- The last parked event of each task of one partition: id, record, and its definition, if one was parked.
SELECT DISTINCT ON (newest.task_id) newest.task_id, newest.record, (
    SELECT definition FROM parked_events AS other
    WHERE other.task_id = newest.task_id AND other.partition = newest.partition AND definition IS NOT NULL
    ORDER BY other.parked_id DESC
    LIMIT 1
)
FROM parked_events AS newest
WHERE newest.partition = %s
ORDER BY newest.task_id, newest.parked_id DESC;
