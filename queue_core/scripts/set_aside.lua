-- set_aside: assigned | executing -> queued, and out of the queue, for tasks whose definition the claimer cannot read
-- The claim costs them nothing. Sweep puts them back from time to time: another version may read them.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @reply OK
-- @use   load_task, check_lease, release_task, unreadable_tasks, commit
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease = row(i)
  local task = load_whole(task_id)
  if not lease_refusal(task, worker_id, lease, 'assigned', 'executing') then
    release_task(task_id, task)
    set_aside(task_id)
  end
end
commit()
return {'OK'}
