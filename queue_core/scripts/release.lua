-- release: assigned | executing -> queued
-- The task keeps its place at no cost, and its rate token and slot are free again.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, check_lease, release_task, commit
local replies = {'OK', now}
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease = row(i)
  local task = load_whole(task_id)
  local refused = lease_refusal(task, worker_id, lease, 'assigned', 'executing')
  if not refused then release_task(task_id, task) end
  replies[i + 2] = refused or 'OK queued'
end
commit()
return replies
