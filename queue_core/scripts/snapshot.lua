-- snapshot: everything that the invariants check, read at one instant
-- For tests and `tideq doctor`: reads every task.
--
-- @flags no-writes
-- @key   queue       zset
-- @key   records      hash
-- @key   definitions  hash
-- @key   heads       zset
-- @key   counts      hash
-- @key   ages        hash
-- @key   lane_names  hash
-- @key   dead        zset
-- @key   workers     zset
-- @key   unreadable  zset
-- @prefix worker_tasks  set
-- @reply OK
local held = {}
for _, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  held[#held + 1] = worker
  held[#held + 1] = redis.call('SMEMBERS', worker_tasks_keys .. worker)
end
return {'OK', now, redis.call('ZRANGE', queue_key, 0, -1, 'WITHSCORES'), redis.call('HGETALL', records_key),
  redis.call('HKEYS', definitions_key),
  redis.call('ZRANGE', heads_key, 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', counts_key), redis.call('HGETALL', ages_key), redis.call('HGETALL', lane_names_key),
  redis.call('ZRANGE', dead_key, 0, -1), held, redis.call('ZRANGE', unreadable_key, 0, -1)}
