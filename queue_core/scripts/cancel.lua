-- cancel: queued | assigned | executing -> cancelled
-- Takes effect at once; a worker that holds the task is told to stop and its result will be refused.
--
-- @flags allow-oom
-- @row   task_id
-- @reply OK TASK_NOT_FOUND WRONG_STATE
-- @use   load_task, finish, hold, limits, tally, commit
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
      tell_to_stop(task_id, task)
    end
    if was == 'assigned' then refund(task.lane) end
    tally('cancelled')
    finish(task_id, task, 'cancelled', 'cancelled')
    replies[i + 2] = 'OK ' .. was .. ' ' .. worker
  end
end
commit()
return replies
