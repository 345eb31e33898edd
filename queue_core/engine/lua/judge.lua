-- judge: change how a worker stands: active, draining or unhealthy
-- A verdict about health never undoes a drain, and none brings a dead worker back.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @arg   verdict    text
-- @reply OK UNKNOWN_WORKER
-- @use   wake, commit
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
if state ~= 'draining' then
  redis.call('HSET', worker_keys .. worker_id, 'state', verdict)
  state = verdict
end
stopped_workers[worker_id] = true
commit()
return {'OK', state}
