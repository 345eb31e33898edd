-- heartbeat: a worker is alive
-- Moves the worker's deadline and no task's. The answer says what to abandon and whether to drain.
--
-- @flags allow-oom
-- @key   workers  zset
-- @prefix worker  hash
-- @arg   worker_id             text
-- @arg   heartbeat_timeout_ms  int
-- @arg   health                text  empty to keep what was reported last
-- @reply OK UNKNOWN_WORKER
-- @use   stops, commit
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
if health ~= '' then redis.call('HSET', worker_keys .. worker_id, 'health', health) end
commit()
return {'OK', now, state == 'draining' and 1 or 0, stops_of(worker_id)}
