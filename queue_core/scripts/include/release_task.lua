-- release_task: returns a held task to its place at no cost
-- An attempt that never started gives its number back; a started one keeps it, so that attempts stay distinct.
--
-- @use   put_back, worker_tasks, limits
local function release_task(task_id, task)
  unhold(task_id, task)
  refund(task.lane)
  if task.state == 'assigned' then task.attempt = task.attempt - 1 end
  put_back(task_id, task, 'released')
end
