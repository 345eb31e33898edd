-- prune_default
-- Of a page of the default partition, tasks that ended too long ago go, and go on being counted. A partition goes as a
-- whole when its time is over; the ids of these lie outside all of them, so when they ended decides.
--   after, page_size   where the page begins, and how many tasks it has
--   states             those that count as ended
--   ended_before_ms    Unix milliseconds; and so is
--   died_after_ms      since when a dead letter stays in any case
-- Gives the last id of the page, if it has any, and the ids that went.
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
