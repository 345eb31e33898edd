-- Parks an event that PostgreSQL refuses, as it came.
--   partition, epoch, entry id, store's clock in Unix milliseconds, task id, version, record, body, definition, the error
INSERT INTO parked_events (partition, epoch, entry_id, now_ms, task_id, version, record, body, definition, problem)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s);
