-- dismiss: assigned | executing -> queued, for all a leaving worker holds
-- The worker goes once it holds nothing; an id that is not of a task it holds, or of one that cannot be read, is only
-- forgotten: what is due is recovered without it. A fleet member with very much in hand is dismissed in several calls.
--
-- @flags allow-oom
-- @key   workers  zset
-- @prefix worker  hash
-- @prefix held    set
-- @prefix stops   zset
-- @arg   worker_id  text
-- @arg   limit      int
-- @reply OK UNKNOWN_WORKER
-- @use   load_task, hand_back, commit
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('HSET', worker_keys .. worker_id, 'state', 'draining', 'word', 'leaving')
local ids = redis.call('SRANDMEMBER', held_keys .. worker_id, limit)
for _, task_id in ipairs(ids) do
  local task = load_whole(task_id)
  if task and task.worker == worker_id and (task.state == 'assigned' or task.state == 'executing') then
    hand_back(task_id, task)
  else
    redis.call('SREM', held_keys .. worker_id, task_id)
  end
end
commit()
local left = redis.call('SCARD', held_keys .. worker_id)
if left == 0 then
  redis.call('ZREM', workers_key, worker_id)
  redis.call('DEL', worker_keys .. worker_id, stops_keys .. worker_id)
end
return {'OK', #ids, left}
