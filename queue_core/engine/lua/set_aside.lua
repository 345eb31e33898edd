-- set_aside: assigned | executing -> queued, and out of the queue, for tasks that the claimer cannot read
-- The claim costs them nothing. Sweep puts them back from time to time: another version may read them. Where it is the
-- record, and what returning to the queue needs cannot be read, the task stays as it is, and goes on from there.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @reply OK
-- @use   load_task, held_by, hand_back, set_aside, commit
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease = row(i)
  if not refusal(load_task(task_id), worker_id, lease, 'assigned', 'executing') then
    local task = load_whole(task_id)
    if task ~= UNREADABLE then hand_back(task_id, task) end
    set_aside(task_id)
  end
end
commit()
return {'OK'}
