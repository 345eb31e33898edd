-- move: the one way a task changes state: counts, version, record and event together
-- Callers have refused what they must before they call; from here on nothing can fail.
--
-- @use   count, emit
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

local function move(task_id, task, to, reason, visible_at, field, body)
  if LIVE[task.state] then count(task, -1) end
  task.state, task.reason, task.visible_ms, task.version = to, reason, visible_at, successor(task.version)
  if LIVE[to] then count(task, 1) end
  local packed = pack_record(task)
  if field then
    redis.call('HSET', task.key, 's', packed, field, body)
  else
    redis.call('HSET', task.key, 's', packed)
  end
  emit(task_id, packed, field ~= 'd' and body or nil)
  return packed
end
