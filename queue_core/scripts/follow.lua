-- follow: the journal moves on in the outbox, for one of many readers
-- Only from where the caller believes it to be: one reader wins a stretch of the stream, the others hear where it is.
-- When a retry becomes visible is known by the event that hid it and needed with the claim that ended its wait: it is
-- remembered in between, and forgotten a day later in any case.
--
-- @flags allow-oom
-- @key   journal   hash
-- @key   backoffs  zset
-- @arg   expected  text  where the reader began; empty where there was no journal
-- @arg   position  text  the last entry it read
-- @row   task_id
-- @row   hidden_until  an instant to remember; empty to be told and forget
-- @reply OK
local KEPT_MS = 86400000
local known = redis.call('HGET', journal_key, 'position') or ''
if known ~= expected then return {'OK', 0, known} end
redis.call('HSET', journal_key, 'position', position)

local replies = {'OK', 1, position}
for i = 1, row_count do
  local task_id, hidden_until = row(i)
  if hidden_until == '' then
    local told = redis.call('ZSCORE', backoffs_key, task_id)
    if told then redis.call('ZREM', backoffs_key, task_id) end
    replies[i + 3] = told and string.format('%.0f', told) or ''
  else
    redis.call('ZADD', backoffs_key, hidden_until, task_id)
    replies[i + 3] = ''
  end
end
if row_count > 0 then redis.call('ZREMRANGEBYSCORE', backoffs_key, '-inf', now - KEPT_MS) end
return replies
