-- load_task: records as tables, many at a time
-- Rows are fetched together before the first is looked at. A table is kept for the whole script: a task that appears
-- twice is seen as the first appearance left it.
--
-- @key   records  hash
local tasks = {}

local function fetch_tasks(ids)
  if #ids == 0 then return end
  local packed = redis.call('HMGET', records_key, unpack(ids))
  for i, task_id in ipairs(ids) do
    if packed[i] and tasks[task_id] == nil then tasks[task_id] = unpack_record(packed[i]) end
  end
end

local function load_task(task_id)
  if tasks[task_id] == nil then fetch_tasks({task_id}) end
  return tasks[task_id] or nil
end
