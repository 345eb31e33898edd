-- complete: executing -> completed
-- Only the lease holder's result is accepted, and only once; the same result again is answered like the first time.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @row   digest
-- @row   result
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, settle, finish, hold, tally, circuit, commit
local replies, done_count, duration_ms = {'OK', now}, 0, 0
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease, digest, result = row(i)
  local task = load_task(task_id)
  local before = repeated(task, lease, digest)
  local refused = not before and refusal(task, worker_id, lease, 'executing')
  if before or refused then
    replies[i + 2] = before and 'OK ' .. before or refused
  else
    remember(task, digest, 'completed')
    unhold(task_id, task)
    count_outcome(worker_id, task.lane, 'good', 1)
    done_count, duration_ms = done_count + 1, duration_ms + now - (tonumber(task.started_ms) or now)
    keep_result(task_id, result)
    finish(task_id, task, 'completed', 'succeeded', result)
    replies[i + 2] = 'OK completed'
  end
end
if done_count > 0 then
  tally('completed', done_count)
  tally('duration_ms', duration_ms)
end
judge_circuits()
commit()
return replies
