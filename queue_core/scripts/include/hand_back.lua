-- hand_back: return a held task to its place, free of charge
-- An attempt that never started gives its number back; one that did keeps it, so that attempts stay distinct.
--
-- @use   requeue, hold, limits
local function hand_back(task_id, task)
  unhold(task_id, task)
  refund(task.lane)
  if task.state == 'assigned' then task.attempt = task.attempt - 1 end
  requeue(task_id, task, 'released')
end
