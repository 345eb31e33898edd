-- held_by: why a worker may not speak for a task, or nil if it may
--
-- @reply TASK_NOT_FOUND WRONG_STATE STALE_LEASE
local function refusal(task, worker_id, lease, state, other_state)
  if not task then return 'TASK_NOT_FOUND' end
  if task.lease ~= lease or task.worker ~= worker_id then return 'STALE_LEASE ' .. task.state end
  if task.state ~= state and task.state ~= other_state then return 'WRONG_STATE ' .. task.state end
end
