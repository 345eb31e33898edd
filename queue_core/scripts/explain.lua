-- explain: why a task is in its present state
-- Returns its place among all ready tasks, the pauses and limits of its type, and the workers that could take it.
--
-- @flags no-writes
-- @key   queue       zset
-- @key   heads       zset
-- @key   workers     zset
-- @key   lane_names  hash
-- @prefix worker  hash
-- @prefix worker_tasks    set
-- @arg   task_id  text
-- @reply OK TASK_NOT_FOUND WRONG_STATE
-- @use   band, load_task, position, limits, worker_status, blocked_types
local task = load_whole(task_id)
if not task then return {'TASK_NOT_FOUND'} end
if task == UNREADABLE then return {'WRONG_STATE', task.state} end
local score = tonumber(redis.call('ZSCORE', queue_key, task_id) or nil)
local is_ready = score and score < 0

local function global_position()
  local ahead = lane_position(task_id, task.lane)
  for _, lane in ipairs(redis.call('ZRANGEBYSCORE', heads_key, '-inf', task.rank)) do
    if lane ~= task.lane then
      local floor = band_floor(lane)
      ahead = ahead + redis.call('ZCOUNT', queue_key, string.format('%.0f', floor),
        '(' .. string.format('%.0f', floor + task.rank))
    end
  end
  return ahead
end

local function control_of(scope)
  local rules = controls()
  local left, retry_at = allowance(scope)
  return {scope, rules['pause:' .. scope] or '', rules['rate:' .. scope] or '',
    rules['max:' .. scope] or '', left < math.huge and left or '', retry_at and string.format('%.0f', retry_at) or ''}
end

-- For each worker its circuit for this type: until when it is open, or how many trials are left.
local fleet = {}
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key, '(' .. now, '+inf')) do
  local fields = redis.call('HMGET', worker_keys .. worker, 'state', 'profile', 'circuits', 'word')
  load_blocks(worker, fields[3], '')
  local left, blocked_until = trials_left(blocks['*'] and '*' or lane_type(task.lane))
  fleet[#fleet + 1] = {worker, status_of(fields[1], fields[4]), fields[2] or '',
    blocked_until and string.format('%.0f', blocked_until) or '',
    left < math.huge and not blocked_until and left or ''}
end

return {'OK', now, pack_record(task), score and string.format('%.0f', score) or '',
  is_ready and lane_position(task_id, task.lane) or '', is_ready and global_position() or '',
  redis.call('HGET', lane_names_key, task.lane) or '', fleet, control_of('*'), control_of(lane_type(task.lane))}
