-- Whether a range of ids still has a live task, or a dead letter within its TTL.
--   start, end      ids, the end excluded
--   died_after_ms   Unix milliseconds
SELECT EXISTS (
    SELECT FROM tasks
    WHERE state = ANY ('{queued,assigned,executing}') AND task_id >= %(start)s AND task_id < %(end)s
) OR EXISTS (
    SELECT FROM dead_letter_tasks
    WHERE died_at > to_timestamp(%(died_after_ms)s / 1000.0) AND task_id >= %(start)s AND task_id < %(end)s
);
