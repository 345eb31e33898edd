-- commit: writes everything that was gathered, stores the instant, wakes waiting polls
-- A script with two parts flushes the first and commits at its end, so that polls are woken once.
--
-- @use   clock, record_buffer, place, task_counts, event_counts, outbox_append, worker_tasks, wake
local function flush()
  flush_records()
  flush_places()
  flush_counts()
  flush_event_counts()
  flush_events()
  flush_holds()
end

local function commit()
  flush()
  store_time()
  publish_wakes()
end
