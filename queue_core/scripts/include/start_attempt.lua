-- start_attempt: assigned -> executing, hidden until the execution deadline
--
-- @use   move, place
local deadlines, deadline_texts = {}, {}

-- Cached: most tasks of a batch have one timeout, and formatting a number is slow.
local function deadline(timeout_ms)
  if not deadlines[timeout_ms] then
    deadlines[timeout_ms] = now + timeout_ms
    deadline_texts[timeout_ms] = string.format('%.0f', now + timeout_ms)
  end
  return deadlines[timeout_ms], deadline_texts[timeout_ms]
end

local function start_attempt(task_id, task)
  local visible_at, visible_text = deadline(task.timeout_ms)
  task.started_ms = now_text
  place_hidden(task_id, visible_at, visible_text)
  return move(task_id, task, 'executing', 'started', visible_text)
end
