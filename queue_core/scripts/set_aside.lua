-- set_aside: assigned | executing -> queued, and out of the queue, for tasks that the claiming process cannot read
-- The claim costs the tasks nothing. The sweep puts them back from time to time, as another version may read them. If the
-- fields of the record that a requeue needs cannot be read, the task keeps its state.
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
  if not lease_refusal(load_task(task_id), worker_id, lease, 'assigned', 'executing') then
    local task = load_whole(task_id)
    if task ~= UNREADABLE then release_task(task_id, task) end
    set_aside(task_id)
  end
end
commit()
return {'OK'}
