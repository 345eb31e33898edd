-- judge: what the service finds about a worker: an operator drains it, or its health was probed
-- A verdict about health never undoes a drain, and none brings a dead worker back.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id       text
-- @arg   verdict         text  active, draining or unhealthy; empty to leave it
-- @arg   probe_failures  text  empty, or how many probes in a row failed
-- @reply OK UNKNOWN_WORKER
-- @use   status, tally, wake, commit
local state, word = unpack(redis.call('HMGET', worker_keys .. worker_id, 'state', 'word'))
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
local found = (state == 'draining' or verdict == '') and state or verdict
if probe_failures ~= '' then
  redis.call('HSET', worker_keys .. worker_id, 'probe_failures', probe_failures)
  if probe_failures ~= '0' then tally('health_probe_failures') end
end
if found ~= state then
  redis.call('HSET', worker_keys .. worker_id, 'state', found)
  if found == 'unhealthy' then tally('probe_failed') end
  stopped_workers[worker_id] = true
end
if status_of(found, word) ~= status_of(state, word) then redis.call('HSET', worker_keys .. worker_id, 'since_ms', now) end
commit()
return {'OK', status_of(found, word)}
