-- heartbeat: a worker is alive
-- Moves the worker's deadline and no task's. What it leaves out about itself stands as it was said last. The answer says
-- what to abandon and whether an operator wants it to drain: its own word is not echoed.
--
-- @flags allow-oom
-- @key   workers  zset
-- @prefix worker  hash
-- @arg   worker_id             text
-- @arg   heartbeat_timeout_ms  int
-- @arg   health                text  what it measures
-- @arg   word                  text  active, draining or unhealthy
-- @arg   load                  text  how many tasks it works on
-- @reply OK UNKNOWN_WORKER
-- @use   status, stops, circuits, commit
local state, circuits, last_word = unpack(redis.call('HMGET', worker_keys .. worker_id, 'state', 'circuits', 'word'))
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
if health ~= '' then redis.call('HSET', worker_keys .. worker_id, 'health', health) end
if load ~= '' then redis.call('HSET', worker_keys .. worker_id, 'load', load) end
if word ~= '' and word ~= (last_word or 'active') then
  redis.call('HSET', worker_keys .. worker_id, 'word', word)
  if word == 'unhealthy' then tally('unhealthy_by_itself') end
  if status_of(state, word) ~= status_of(state, last_word) then
    redis.call('HSET', worker_keys .. worker_id, 'since_ms', now)
    stopped_workers[worker_id] = true
  end
end
commit()
return {'OK', now, state == 'draining' and 1 or 0, stops_of(worker_id), circuits_text(read_circuits(circuits))}
