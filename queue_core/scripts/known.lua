-- known: which submissions stand for a task already, by their idempotency key or by the id they chose
-- Asked of the partitions that an earlier number of partitions would have put them in.
--
-- @flags no-writes
-- @key   records  hash
-- @prefix idempotency  string
-- @row   name     of the idempotency key, or empty
-- @row   task_id  or empty
-- @reply OK
-- @use   keys_of_batches
local answers = {'OK'}
for i = 1, row_count do
  local name, task_id = row(i)
  local key = name ~= '' and read_key(redis.call('GET', idempotency_keys .. name) or '')
  local is_known = key and not key.is_pending
    or task_id ~= '' and redis.call('HEXISTS', records_key, task_id) == 1
  answers[i + 1] = is_known and 1 or 0
end
return answers
