-- spend_retry: a failed or timed-out execution costs one retry; without one the task is a dead letter
-- The errors of the last twenty attempts stay beside the task, with the number of earlier ones; history keeps them all.
--
-- @prefix attempt_notes  hash
-- @use   put_back, finish, retry_delay, event_counts
local KEPT_ERRORS = 20

local function note_error(task_id, task, body)
  redis.call('HSET', attempt_notes_keys .. task_id, 'e' .. task.attempt, body)
  if task.attempt - KEPT_ERRORS > 0 then
    local count = redis.call('HDEL', attempt_notes_keys .. task_id, 'e' .. task.attempt - KEPT_ERRORS)
    if count > 0 then redis.call('HINCRBY', attempt_notes_keys .. task_id, 'dropped', count) end
  end
end

local function spend_retry(task_id, task, code, reason, jitter, body)
  note_error(task_id, task, body)
  if task.retries >= task.max_retries then return make_dead_letter(task_id, task, 'retries_exhausted', body) end
  local visible_at = now + retry_delay(task, code, jitter)
  task.timeout_ms = next_timeout(task, code)
  task.retries = task.retries + 1
  count_event('retries')
  put_back_later(task_id, task, visible_at, reason, body)
end
