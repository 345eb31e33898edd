-- find_existing: which submissions have a task already, by their idempotency key or by their chosen id
-- Called on the partitions in which an earlier number of partitions would have placed them.
--
-- @flags no-writes
-- @key   records  hash
-- @prefix idempotency  string
-- @row   name     of the idempotency key, or empty
-- @row   task_id  or empty
-- @reply OK
-- @use   pending_keys
local answers = {'OK'}
for i = 1, row_count do
  local name, task_id = row(i)
  local key = name ~= '' and read_key(redis.call('GET', idempotency_keys .. name) or '')
  local exists = key and not key.is_pending
    or task_id ~= '' and redis.call('HEXISTS', records_key, task_id) == 1
  answers[i + 1] = exists and 1 or 0
end
return answers
