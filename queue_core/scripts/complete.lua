-- complete: executing -> completed
-- Accepts only the lease holder's result, and only once. The same result sent again gets the first reply again.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @row   digest
-- @row   result
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, accepted_result, finish, worker_tasks, event_counts, circuit_breaker, commit
local replies, done_count, duration_ms = {'OK', now}, 0, 0
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease, digest, result = row(i)
  local task = load_task(task_id)
  local before = earlier_outcome(task, lease, digest)
  local refused = not before and lease_refusal(task, worker_id, lease, 'executing')
  if before or refused then
    replies[i + 2] = before and 'OK ' .. before or refused
  else
    remember_result(task, digest, 'completed')
    unhold(task_id, task)
    count_outcome(worker_id, task.lane, 'good', 1)
    done_count, duration_ms = done_count + 1, duration_ms + now - (tonumber(task.started_ms) or now)
    store_result(task_id, result)
    finish(task_id, task, 'completed', 'succeeded', result)
    replies[i + 2] = 'OK completed'
  end
end
if done_count > 0 then
  count_event('completed', done_count)
  count_event('duration_ms', duration_ms)
end
update_circuits()
commit()
return replies
