-- free_key: the idempotency key of a task that is gone stands for nothing any more
-- It may have expired and stand for a later task by now. One that stands for a whole batch (its fingerprint begins with a
-- star) stays: to repeat the batch must not double the others.
--
-- @prefix idempotency  string
local function free_key(task_id, idempotency)
  if idempotency == '' or string.find(idempotency, ' *', 1, true) then return end
  local key = idempotency_keys .. string.match(idempotency, '^%S+')
  if string.match(redis.call('GET', key) or '', '^%S+') == task_id then redis.call('DEL', key) end
end
