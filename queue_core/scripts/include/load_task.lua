-- load_task: records as tables, many at a time
-- Rows are fetched together before the first is used. A table is cached for the whole script: a task that appears twice
-- is seen as its first row left it. A record that cannot be read is the table UNREADABLE, in a state that no task is
-- in, so that no script finds the state it expects.
--
-- @key   records  hash
local tasks = {}
local UNREADABLE = {
  state = 'unreadable', version = '0', lane = '0', visible_ms = '', age_bucket = '', lease = '', worker = '',
  reason = '', last_result = '', cold = false,
}

-- Cached by text, because most tasks of a batch share it.
local function numbers(cache)
  return setmetatable(cache, {__index = function(_, text)
    cache[text] = tonumber(text) ~= nil
    return cache[text]
  end})
end

local is_number, is_instant = numbers({}), numbers({[''] = true})

local function read_record(packed)
  local is_read, task = pcall(unpack_record, packed)
  if is_read and is_number[task.version] and is_number[task.lane] and is_number[task.timeout_ms]
    and is_number[task.attempt] and is_instant[task.visible_ms] and is_instant[task.started_ms] then return task end
  return UNREADABLE
end

local function fetch_tasks(ids)
  if #ids == 0 then return end
  local packed = redis.call('HMGET', records_key, unpack(ids))
  for i, task_id in ipairs(ids) do
    if packed[i] and tasks[task_id] == nil then tasks[task_id] = read_record(packed[i]) end
  end
end

local function load_task(task_id)
  if tasks[task_id] == nil then fetch_tasks({task_id}) end
  return tasks[task_id] or nil
end

-- For callers that need the cold fields: UNREADABLE also where only these cannot be read.
local function load_whole(task_id)
  local task = load_task(task_id)
  if task and not (has_cold(task) and is_number[task.created_ms] and is_instant[task.eligible_ms]) then
    return UNREADABLE
  end
  return task
end
