-- move: the one way a task changes state: counts, version, record and event together
-- Callers have refused what they must before they call; from here on nothing can fail.
--
-- @use   count, emit, keep
local successors = {}

-- The next version as text: formatting a number costs more than looking up one formatted before.
local function successor(version)
  local text = successors[version]
  if not text then
    text = string.format('%d', version + 1)
    successors[version] = text
  end
  return text
end

-- Through a state that the task leaves again in this very script: history hears of it, the record tells the last.
-- Events are to be flushed before the next move.
local function pass_through(task_id, task, to, reason, visible_at, body)
  count_move(task, to)
  task.state, task.reason, task.visible_ms, task.version = to, reason, visible_at, successor(task.version)
  local packed = pack_record(task)
  emit(task_id, packed, body)
  return packed
end

local function move(task_id, task, to, reason, visible_at, body)
  local packed = pass_through(task_id, task, to, reason, visible_at, body)
  keep_record(task_id, packed)
  return packed
end
