-- read: a task as it is now, with its place in its lane
--
-- @flags no-writes
-- @key   queue  zset
-- @prefix task  hash
-- @row   task_id
-- @reply OK
-- @use   band, position
local replies = {'OK', now}
for i = 1, row_count do
  local task_id = row(i)
  local fields = redis.call('HGETALL', task_keys .. task_id)
  local score = redis.call('ZSCORE', queue_key, task_id) or ''
  local place = score ~= '' and tonumber(score) < 0 and lane_position(task_id, tonumber(score)) or ''
  replies[i + 2] = {score, place, fields}
end
return replies
