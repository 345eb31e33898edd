-- load_task: a task's record as a table, or nil
--
-- @prefix task  hash
local function load_task(task_id)
  local key = task_keys .. task_id
  local packed = redis.call('HGET', key, 's')
  return packed and unpack_record(packed, key) or nil
end
