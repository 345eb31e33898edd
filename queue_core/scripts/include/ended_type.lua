-- ended_type: the type of a task that has ended, whose lane may have another type by now
-- A lane that was given to another signature is remembered for 31 days, longer than a finished task stays in the store.
--
-- @key   retired_lanes  zset
-- @use   lane_type
local retired = nil

-- The lane's first retirement after the end of the task has its signature.
local function ended_type(task)
  retired = retired or redis.call('ZRANGE', retired_lanes_key, 0, -1, 'WITHSCORES')
  for i = 1, #retired, 2 do
    local lane, task_type = string.match(retired[i], '^(%S+) %S+ ([^|]*)')
    if lane == task.lane and tonumber(retired[i + 1]) >= tonumber(task.ended_ms) then return task_type end
  end
  return lane_type(task.lane)
end
