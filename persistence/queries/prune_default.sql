-- Removes tasks of one page of the default partition that ended too long ago, and adds them to the totals. Other
-- partitions are dropped as a whole when their range is over; these ids lie outside all ranges, so the end decides.
--   after, page_size   the id before the page, and the number of its tasks
--   states             the terminal states
--   ended_before_ms    Unix milliseconds
--   died_after_ms      Unix milliseconds; later dead letters stay
-- Returns the last id of the page, null if the page is empty, and the ids that were removed.
WITH page AS (
    SELECT task_id FROM tasks_default WHERE task_id > %(after)s ORDER BY task_id LIMIT %(page_size)s
), old AS (
    SELECT task_id
    FROM tasks_default
    WHERE task_id IN (SELECT task_id FROM page)
      AND state = ANY (%(states)s)
      AND coalesce(ended_at, created_at) < to_timestamp(%(ended_before_ms)s / 1000.0)
      AND NOT EXISTS (
          SELECT FROM dead_letter_tasks_default AS dead
          WHERE dead.task_id = tasks_default.task_id AND dead.died_at > to_timestamp(%(died_after_ms)s / 1000.0)
      )
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM tasks_default USING old
    WHERE tasks_default.task_id = old.task_id
    RETURNING tasks_default.task_id, task_type, state
), counted AS (
    INSERT INTO dropped_totals (task_type, state, task_count)
    SELECT task_type, state, count(*) FROM gone GROUP BY task_type, state
    ON CONFLICT (task_type, state) DO UPDATE SET task_count = dropped_totals.task_count + excluded.task_count
)
SELECT (SELECT task_id FROM page ORDER BY task_id DESC LIMIT 1), ARRAY(SELECT task_id FROM gone);
