-- start: assigned -> executing
-- Hides the task until its execution deadline, which only an extension moves. Repeating an accepted start changes
-- nothing.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, check_lease, start_attempt, commit
local replies = {'OK', now}

fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease = row(i)
  local task = load_task(task_id)
  local refused = lease_refusal(task, worker_id, lease, 'assigned', 'executing')
  if refused then
    replies[i + 2] = refused
  elseif task.state == 'executing' then
    replies[i + 2] = 'OK ' .. task.visible_ms
  else
    start_attempt(task_id, task)
    replies[i + 2] = 'OK ' .. task.visible_ms
  end
end
commit()
return replies
