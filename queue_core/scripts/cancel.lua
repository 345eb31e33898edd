-- cancel: queued | assigned | executing -> cancelled
-- Takes effect at once. The worker that holds the task receives a stop, and its result will be refused.
--
-- @flags allow-oom
-- @row   task_id
-- @reply OK TASK_NOT_FOUND WRONG_STATE
-- @use   load_task, finish, worker_tasks, limits, event_counts, commit
local replies = {'OK', now}
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id = row(i)
  local task = load_task(task_id)
  if not task then
    replies[i + 2] = 'TASK_NOT_FOUND'
  elseif not LIVE[task.state] then
    replies[i + 2] = 'WRONG_STATE ' .. task.state
  else
    local was, worker = task.state, task.state ~= 'queued' and task.worker or ''
    if was ~= 'queued' then
      unhold(task_id, task)
      request_stop(task_id, task)
    end
    if was == 'assigned' then refund(task.lane) end
    count_event('cancelled')
    finish(task_id, task, 'cancelled', 'cancelled')
    replies[i + 2] = 'OK ' .. was .. ' ' .. worker
  end
end
commit()
return replies
