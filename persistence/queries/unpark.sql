-- Removes the parked events of one task (partition, task id), and returns them in their order.
WITH taken AS (
    DELETE FROM parked_events WHERE partition = %s AND task_id = %s
    RETURNING parked_id, entry_id, epoch, now_ms, task_id, record, body, definition
)
SELECT entry_id, epoch, now_ms, task_id, record, body, definition FROM taken ORDER BY parked_id;
