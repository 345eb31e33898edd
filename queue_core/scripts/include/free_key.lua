-- free_key: frees the idempotency key of a task that is deleted
-- The key may have expired and stand for a later task by now. A key that stands for a whole batch (its fingerprint
-- begins with a star) stays: repeating the batch must not double its other tasks.
--
-- @prefix idempotency  string
local function free_key(task_id, idempotency)
  if idempotency == '' or string.find(idempotency, ' *', 1, true) then return end
  local key = idempotency_keys .. string.match(idempotency, '^%S+')
  if string.match(redis.call('GET', key) or '', '^%S+') == task_id then redis.call('DEL', key) end
end
