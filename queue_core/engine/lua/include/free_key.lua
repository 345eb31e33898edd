-- free_key: the idempotency key of a task that is gone stands for nothing any more
-- It may have expired and stand for a later task by now.
--
-- @prefix idempotency  string
local function free_key(task_id, idempotency)
  if idempotency == '' then return end
  local key = idempotency_keys .. string.match(idempotency, '^%S+')
  if string.match(redis.call('GET', key) or '', '^%S+') == task_id then redis.call('DEL', key) end
end
