-- heartbeat: a worker is alive
-- Moves the worker's deadline, and no task's. An omitted value keeps what the worker reported last. The reply has the
-- stops and whether an operator drains the worker; the worker's own word is not repeated.
--
-- @flags allow-oom
-- @key   workers  zset
-- @prefix worker  hash
-- @arg   worker_id             text
-- @arg   heartbeat_timeout_ms  int
-- @arg   health                text  its measurements
-- @arg   word                  text  its own status: active, draining or unhealthy
-- @arg   load                  text  how many tasks it works on
-- @reply OK UNKNOWN_WORKER
-- @use   worker_status, cancellations, circuit_state, commit
local state, circuits, last_word = unpack(redis.call('HMGET', worker_keys .. worker_id, 'state', 'circuits', 'word'))
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
if health ~= '' then redis.call('HSET', worker_keys .. worker_id, 'health', health) end
if load ~= '' then redis.call('HSET', worker_keys .. worker_id, 'load', load) end
if word ~= '' and word ~= (last_word or 'active') then
  redis.call('HSET', worker_keys .. worker_id, 'word', word)
  if word == 'unhealthy' then count_event('unhealthy_by_itself') end
  if status_of(state, word) ~= status_of(state, last_word) then
    redis.call('HSET', worker_keys .. worker_id, 'since_ms', now)
    woken_workers[worker_id] = true
  end
end
commit()
return {'OK', now, state == 'draining' and 1 or 0, stops_of(worker_id), circuits_text(read_circuits(circuits))}
