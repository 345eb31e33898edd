-- forget: what outlives the record of a finished task, for one that history has removed
-- Its place among the dead letters, its idempotency key, and that it was counted. A task that the store has again keeps
-- all of them.
--
-- @flags allow-oom
-- @key   dead     zset
-- @key   records  hash
-- @row   task_id
-- @row   idempotency  as its record had it, empty for none
-- @row   task_type    empty where it is not counted here
-- @row   state        the one it ended in
-- @reply OK
-- @use   free_key, count
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
