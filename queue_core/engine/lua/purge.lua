-- purge: a terminal task, removed for good
-- History hears of it as an event and removes it there too. Its idempotency key is free again.
--
-- @flags allow-oom
-- @key   dead  zset
-- @prefix idempotency  string
-- @row   task_id
-- @reply OK TASK_NOT_FOUND WRONG_STATE
-- @use   load_task, count, emit, commit
local replies = {'OK', now}
for i = 1, row_count do
  local task_id = row(i)
  local task = load_task(task_id)
  if not task then
    replies[i + 2] = 'TASK_NOT_FOUND'
  elseif LIVE[task.state] then
    replies[i + 2] = 'WRONG_STATE ' .. task.state
  else
    task.reason, task.version = 'purged', task.version + 1
    emit(task_id, pack_record(task))
    redis.call('DEL', task.key)
    redis.call('ZREM', dead_key, task_id)
    if task.idempotency ~= '' then redis.call('DEL', idempotency_keys .. task.idempotency) end
    replies[i + 2] = 'OK'
  end
end
commit()
return replies
