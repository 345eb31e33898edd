-- snapshot: everything the invariants speak about, read in one instant
-- For tests and the doctor: it reads every live task. Rows name further tasks to include, finished ones for example.
--
-- @flags no-writes
-- @key   queue       zset
-- @key   heads       zset
-- @key   counts      hash
-- @key   ages        hash
-- @key   lane_names  hash
-- @key   dead        zset
-- @key   workers     zset
-- @prefix task  hash
-- @prefix held  set
-- @row   task_id
-- @reply OK
local records, held = {}, {}

local function add(task_id)
  records[#records + 1] = task_id
  records[#records + 1] = redis.call('HGET', task_keys .. task_id, 's') or ''
end

local queue = redis.call('ZRANGE', queue_key, 0, -1, 'WITHSCORES')
for i = 1, #queue, 2 do add(queue[i]) end
for i = 1, row_count do
  local task_id = row(i)
  if not redis.call('ZSCORE', queue_key, task_id) then add(task_id) end
end
for _, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  held[#held + 1] = worker
  held[#held + 1] = redis.call('SMEMBERS', held_keys .. worker)
end
return {'OK', now, queue, records, redis.call('ZRANGE', heads_key, 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', counts_key), redis.call('HGETALL', ages_key), redis.call('HGETALL', lane_names_key),
  redis.call('ZRANGE', dead_key, 0, -1), held}
