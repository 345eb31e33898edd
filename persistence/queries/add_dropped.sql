-- Adds the ended tasks of a partition that is about to be dropped to the totals.
--   start, end   ids, the end excluded
--   states       the terminal states
INSERT INTO dropped_totals (task_type, state, task_count)
SELECT task_type, state, count(*)
FROM tasks
WHERE task_id >= %(start)s AND task_id < %(end)s AND state = ANY (%(states)s)
GROUP BY task_type, state
ON CONFLICT (task_type, state) DO UPDATE SET task_count = dropped_totals.task_count + excluded.task_count;
