-- move: the only place where a task changes state: counts, version, record and event together
-- Callers have refused what they must before they call it; from here on nothing can fail.
--
-- @use   task_counts, outbox_append, record_buffer
local successors = {}

-- The next version as text. Cached: formatting a number costs more than a look-up.
local function successor(version)
  local text = successors[version]
  if not text then
    text = string.format('%d', version + 1)
    successors[version] = text
  end
  return text
end

-- For a state that the task leaves again in the same script: history gets its event, the record only has the last
-- state. The caller flushes events before the next move.
local function pass_through(task_id, task, to, reason, visible_at, body)
  count_move(task, to)
  task.state, task.reason, task.visible_ms, task.version = to, reason, visible_at, successor(task.version)
  local packed = pack_record(task)
  append_event(task_id, packed, body)
  return packed
end

local function move(task_id, task, to, reason, visible_at, body)
  local packed = pass_through(task_id, task, to, reason, visible_at, body)
  store_record(task_id, packed)
  return packed
end
