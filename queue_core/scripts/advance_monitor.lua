-- advance_monitor: moves the monitors' position in the outbox; several monitors compete
-- Moves only from the position that the caller expects: one monitor wins a slice of the stream, the others get the
-- present position. The end of a retry's wait is stored with the event that hides the task, and read with the claim
-- that ends the wait; it is deleted then, or a day later in any case.
--
-- @flags allow-oom
-- @key   monitor_cursor   hash
-- @key   backoffs  zset
-- @arg   expected  text  the position the monitor read from; empty where there was none
-- @arg   position  text  the last entry it read
-- @row   task_id
-- @row   hidden_until  the end of a wait, to store; empty to read and delete it
-- @reply OK
local KEPT_MS = 86400000
local present = redis.call('HGET', monitor_cursor_key, 'position') or ''
if present ~= expected then return {'OK', 0, present} end
redis.call('HSET', monitor_cursor_key, 'position', position)

local replies = {'OK', 1, position}
for i = 1, row_count do
  local task_id, hidden_until = row(i)
  if hidden_until == '' then
    local wait_end = redis.call('ZSCORE', backoffs_key, task_id)
    if wait_end then redis.call('ZREM', backoffs_key, task_id) end
    replies[i + 3] = wait_end and string.format('%.0f', wait_end) or ''
  else
    redis.call('ZADD', backoffs_key, hidden_until, task_id)
    replies[i + 3] = ''
  end
end
if row_count > 0 then redis.call('ZREMRANGEBYSCORE', backoffs_key, '-inf', now - KEPT_MS) end
return replies
