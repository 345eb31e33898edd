-- forget: deletes what outlives the record of a finished task, after history has removed the task
-- This is its place among the dead letters, its idempotency key, and its part of the counts. A task that is in the
-- store again keeps all of them.
--
-- @flags allow-oom
-- @key   dead     zset
-- @key   records  hash
-- @row   task_id
-- @row   idempotency  as its record had it, empty for none
-- @row   task_type    empty where it is not counted here
-- @row   state        the state it ended in
-- @reply OK
-- @use   free_key, task_counts
for i = 1, row_count do
  local task_id, idempotency, task_type, state = row(i)
  if redis.call('HEXISTS', records_key, task_id) == 0 then
    redis.call('ZREM', dead_key, task_id)
    free_key(task_id, idempotency)
    if task_type ~= '' then count_end(task_type, state, -1) end
  end
end
flush_counts()
return {'OK'}
