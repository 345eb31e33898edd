-- stats: counts, ages, recent events and the fleet, in one call
-- Costs the same whatever the depth: it reads what the transitions counted.
--
-- @flags no-writes
-- @key   queue         zset
-- @key   counts        hash
-- @key   ages          hash
-- @key   recent        hash
-- @key   totals        hash
-- @key   ended         hash
-- @key   controls      hash
-- @key   lane_names    hash
-- @key   dead          zset
-- @key   outbox        stream
-- @key   workers       zset
-- @key   dead_workers  zset
-- @key   unreadable    zset
-- @prefix worker  hash
-- @prefix worker_tasks    set
-- @reply OK
-- @use   worker_status, circuit_state
local fleet = {}
for _, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  local fields = redis.call('HMGET', worker_keys .. worker, 'state', 'capacity', 'circuits', 'word')
  fleet[#fleet + 1] = {status_of(fields[1], fields[4]), fields[2] or 0, redis.call('SCARD', worker_tasks_keys .. worker),
    circuits_text(read_circuits(fields[3]))}
end
return {'OK', now, redis.call('HGETALL', counts_key), redis.call('HGETALL', ages_key),
  redis.call('HGETALL', recent_key), redis.call('HGETALL', controls_key), redis.call('HGETALL', lane_names_key), fleet,
  redis.call('ZCARD', dead_workers_key), redis.call('ZCARD', dead_key), redis.call('XLEN', outbox_key),
  redis.call('ZCOUNT', queue_key, '(0', now), redis.call('ZCOUNT', queue_key, '-inf', '(0'),
  redis.call('HGETALL', totals_key), clock_ahead, redis.call('ZCARD', unreadable_key),
  redis.call('HGETALL', ended_key)}
