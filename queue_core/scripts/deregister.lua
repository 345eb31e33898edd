-- deregister: assigned | executing -> queued, for every task of a leaving worker
-- Deletes the worker once it holds nothing. The id of a task that it does not hold, or that cannot be read, is only
-- removed from its set: such a task is recovered when it is due. A worker with very many tasks takes several calls.
--
-- @flags allow-oom
-- @key   workers  zset
-- @prefix worker  hash
-- @prefix worker_tasks    set
-- @prefix cancellations   zset
-- @arg   worker_id  text
-- @arg   limit      int
-- @reply OK UNKNOWN_WORKER
-- @use   load_task, release_task, commit
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if not state or state == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('HSET', worker_keys .. worker_id, 'state', 'draining', 'word', 'leaving')
local ids = redis.call('SRANDMEMBER', worker_tasks_keys .. worker_id, limit)
for _, task_id in ipairs(ids) do
  local task = load_whole(task_id)
  if task and task.worker == worker_id and (task.state == 'assigned' or task.state == 'executing') then
    release_task(task_id, task)
  else
    redis.call('SREM', worker_tasks_keys .. worker_id, task_id)
  end
end
commit()
local left = redis.call('SCARD', worker_tasks_keys .. worker_id)
if left == 0 then
  redis.call('ZREM', workers_key, worker_id)
  redis.call('DEL', worker_keys .. worker_id, cancellations_keys .. worker_id)
end
return {'OK', #ids, left}
