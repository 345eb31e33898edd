-- An event that cannot be written, as it came.
--   partition, epoch, entry id, task id, version, record, body, definition, what PostgreSQL said
INSERT INTO parked_events (partition, epoch, entry_id, task_id, version, record, body, definition, problem)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s);
