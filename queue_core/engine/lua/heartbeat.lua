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
-- @use   stops, circuits, commit
local known = redis.call('HMGET', worker_keys .. worker_id, 'state', 'circuits')
local state = known[1]
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
if health ~= '' then redis.call('HSET', worker_keys .. worker_id, 'health', health) end
commit()
return {'OK', now, state == 'draining' and 1 or 0, stops_of(worker_id), circuits_text(read_circuits(known[2]))}
