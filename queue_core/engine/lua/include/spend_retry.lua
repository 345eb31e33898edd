-- spend_retry: a failed or timed-out execution costs one retry; with none left the task is dead
-- The errors of the last twenty attempts stay beside the task; history keeps them all.
--
-- @use   requeue, finish, retry_delay, tally
local KEPT_ERRORS = 20

local function error_field(task)
  if task.attempt - KEPT_ERRORS > 0 then
    redis.call('HDEL', task.key, 'e' .. (task.attempt - KEPT_ERRORS))
  end
  return 'e' .. task.attempt
end

local function spend_retry(task_id, task, code, reason, jitter, body)
  local field = error_field(task)
  if task.retries >= task.max_retries then
    tally('dead_letters')
    return finish(task_id, task, 'dead_letter', 'retries_exhausted', field, body)
  end
  local visible_at = now + retry_delay(task, code, jitter)
  task.timeout_ms = next_timeout(task, code)
  task.retries = task.retries + 1
  tally('retries')
  defer(task_id, task, visible_at, reason, field, body)
end
