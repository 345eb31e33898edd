-- extend: moves the deadline of an executing task
-- Sets it to the given time from now: at most `max_execution_ms` after the start, and never earlier than it is.
--
-- @flags allow-oom
-- @arg   worker_id         text
-- @arg   max_execution_ms  int
-- @row   task_id
-- @row   lease
-- @row   extension_ms
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, check_lease, record_buffer, place, commit
local replies = {'OK', now}
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease, extension_ms = row(i)
  local task = load_task(task_id)
  local refused = lease_refusal(task, worker_id, lease, 'executing')
  if refused then
    replies[i + 2] = refused
  else
    local until_ms = math.min(now + extension_ms, (tonumber(task.started_ms) or now) + max_execution_ms)
    local visible_at = math.max(tonumber(task.visible_ms) or 0, until_ms)
    task.visible_ms = string.format('%.0f', visible_at)
    place_hidden(task_id, visible_at, task.visible_ms)
    store_record(task_id, pack_record(task))
    replies[i + 2] = 'OK ' .. task.visible_ms
  end
end
commit()
return replies
