-- set_worker_state: the service's view of a worker: drained by an operator, or healthy or not by its probes
-- A verdict about health never ends a drain, and none revives a dead worker.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id       text
-- @arg   verdict         text  active, draining or unhealthy; empty to keep the state
-- @arg   probe_failures  text  empty, or how many probes in a row failed
-- @reply OK UNKNOWN_WORKER
-- @use   worker_status, event_counts, wake, commit
local state, word = unpack(redis.call('HMGET', worker_keys .. worker_id, 'state', 'word'))
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
local next_state = (state == 'draining' or verdict == '') and state or verdict
if probe_failures ~= '' then
  redis.call('HSET', worker_keys .. worker_id, 'probe_failures', probe_failures)
  if probe_failures ~= '0' then count_event('health_probe_failures') end
end
if next_state ~= state then
  redis.call('HSET', worker_keys .. worker_id, 'state', next_state)
  if next_state == 'unhealthy' then count_event('probe_failed') end
  woken_workers[worker_id] = true
end
if status_of(next_state, word) ~= status_of(state, word) then
  redis.call('HSET', worker_keys .. worker_id, 'since_ms', now)
end
commit()
return {'OK', status_of(next_state, word)}
