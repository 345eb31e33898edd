-- fail: executing -> queued | failed | dead_letter
-- `retry` waits out a backoff while the retry budget lasts; `fail` ends the task; `discard` makes it a dead letter.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @row   digest
-- @row   verdict   retry, fail or discard
-- @row   code
-- @row   jitter    -1 … 1
-- @row   blames    1 where the failure counts against the worker
-- @row   error
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, accepted_result, spend_retry, worker_tasks, event_counts, circuit_breaker, commit
local replies = {'OK', now}

local function outcome(task, verdict)
  if verdict == 'fail' then return 'failed' end
  if verdict == 'discard' or task.retries >= task.max_retries then return 'dead_letter' end
  return 'queued'
end

local function apply(task_id, task, verdict, code, jitter, blames, body)
  if verdict == 'retry' then
    if blames == '1' then count_outcome(task.worker, task.lane, 'bad', 1) end
    spend_retry(task_id, task, code, 'error', jitter, body)
  elseif verdict == 'fail' then
    note_error(task_id, task, body)
    finish(task_id, task, 'failed', 'not_retriable', body)
  else
    note_error(task_id, task, body)
    make_dead_letter(task_id, task, 'discarded', body)
  end
end

fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease, digest, verdict, code, jitter, blames, body = row(i)
  local task = load_whole(task_id)
  local before = earlier_outcome(task, lease, digest)
  local refused = not before and lease_refusal(task, worker_id, lease, 'executing')
  if before or refused then
    replies[i + 2] = before and 'OK ' .. before or refused
  else
    local state = outcome(task, verdict)
    remember_result(task, digest, state)
    unhold(task_id, task)
    count_event('failed')
    apply(task_id, task, verdict, code, jitter, blames, body)
    replies[i + 2] = 'OK ' .. state
  end
end
update_circuits()
commit()
return replies
