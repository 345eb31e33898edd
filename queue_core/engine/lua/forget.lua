-- forget: what outlives the record of a finished task, for one that history has removed
-- Its place among the dead letters, and its idempotency key. A task that the store has again keeps both.
--
-- @flags allow-oom
-- @key   dead     zset
-- @key   records  hash
-- @row   task_id
-- @row   idempotency  as its record had it, empty for none
-- @reply OK
-- @use   free_key
for i = 1, row_count do
  local task_id, idempotency = row(i)
  if redis.call('HEXISTS', records_key, task_id) == 0 then
    redis.call('ZREM', dead_key, task_id)
    free_key(task_id, idempotency)
  end
end
return {'OK'}
