-- purge: removes a finished task for good
-- History receives an event and removes the task too. The idempotency key is freed and returned, because it may stand
-- in another partition too.
--
-- @flags allow-oom
-- @key   dead  zset
-- @prefix attempt_notes  hash
-- @row   task_id
-- @reply OK TASK_NOT_FOUND WRONG_STATE
-- @use   load_task, ended_type, task_counts, outbox_append, record_buffer, free_key, commit
local replies = {'OK', now}

fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id = row(i)
  local task = load_whole(task_id)
  if not task then
    replies[i + 2] = 'TASK_NOT_FOUND'
  elseif not ENDED[task.state] then
    replies[i + 2] = 'WRONG_STATE ' .. task.state
  else
    count_end(ended_type(task), task.state, -1)
    task.reason, task.version = 'purged', task.version + 1
    append_event(task_id, pack_record(task))
    delete_task(task_id)
    tasks[task_id] = false
    redis.call('DEL', attempt_notes_keys .. task_id)
    redis.call('ZREM', dead_key, task_id)
    free_key(task_id, task.idempotency)
    local name = string.match(task.idempotency, '^(%S+) [^*]')
    replies[i + 2] = name and 'OK ' .. name or 'OK'
  end
end
commit()
return replies
