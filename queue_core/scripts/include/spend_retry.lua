-- spend_retry: a failed or timed-out execution costs one retry; with none left the task is dead
-- The errors of the last twenty attempts stay beside the task, with how many there were before; history keeps them all.
--
-- @prefix notes  hash
-- @use   requeue, finish, retry_delay, tally
local KEPT_ERRORS = 20

local function note_error(task_id, task, body)
  redis.call('HSET', notes_keys .. task_id, 'e' .. task.attempt, body)
  if task.attempt - KEPT_ERRORS > 0 then
    local count = redis.call('HDEL', notes_keys .. task_id, 'e' .. task.attempt - KEPT_ERRORS)
    if count > 0 then redis.call('HINCRBY', notes_keys .. task_id, 'dropped', count) end
  end
end

local function spend_retry(task_id, task, code, reason, jitter, body)
  note_error(task_id, task, body)
  if task.retries >= task.max_retries then return bury(task_id, task, 'retries_exhausted', body) end
  local visible_at = now + retry_delay(task, code, jitter)
  task.timeout_ms = next_timeout(task, code)
  task.retries = task.retries + 1
  tally('retries')
  defer(task_id, task, visible_at, reason, body)
end
