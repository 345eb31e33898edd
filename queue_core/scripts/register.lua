-- register: a worker joins the fleet
-- The service makes a new id for every registration, so two processes never share one.
--
-- @key   workers       zset
-- @key   dead_workers  zset
-- @prefix worker  hash
-- @arg   worker_id             text
-- @arg   profile               text
-- @arg   description           text
-- @arg   capacity              int
-- @arg   heartbeat_timeout_ms  int
-- @reply OK WORKER_EXISTS
-- @use   commit
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if state and state ~= 'dead' then return {'WORKER_EXISTS', worker_id} end
redis.call('DEL', worker_keys .. worker_id)
redis.call('ZREM', dead_workers_key, worker_id)
redis.call('HSET', worker_keys .. worker_id, 'state', 'active', 'profile', profile, 'capacity', capacity,
  'registered_ms', now, 'd', description)
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
commit()
return {'OK', now}
