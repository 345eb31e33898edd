-- Whether history has an event: task id, epoch, version, and its instant in Unix milliseconds.
SELECT EXISTS (
    SELECT FROM task_events
    WHERE task_id = %s::uuid AND epoch = %s AND version = %s
      AND at = to_timestamp(%s / 1000.0)
);
