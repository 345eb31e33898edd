-- position: how many ready tasks of its lane come before a task
--
-- @key   queue  zset
-- @use   band
local function lane_position(task_id, lane)
  local below = redis.call('ZCOUNT', queue_key, '-inf', '(' .. string.format('%.0f', band_floor(lane)))
  return redis.call('ZRANK', queue_key, task_id) - below
end
