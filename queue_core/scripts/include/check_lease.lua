-- check_lease: why a worker's lease does not allow a call, or nil if it does
--
-- @reply TASK_NOT_FOUND WRONG_STATE STALE_LEASE
local function lease_refusal(task, worker_id, lease, state, other_state)
  if not task then return 'TASK_NOT_FOUND' end
  if task.lease ~= lease or task.worker ~= worker_id then return 'STALE_LEASE ' .. task.state end
  if task.state ~= state and task.state ~= other_state then return 'WRONG_STATE ' .. task.state end
end
