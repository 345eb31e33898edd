-- next_retry_at: when a claim is worth repeating: the next task or worker is due, or a limit refills
-- A silent worker matters only while something is hidden, because all that a worker holds is hidden.
--
-- @key   queue    zset
-- @key   workers  zset
local function next_retry_at(retry_at)
  local due = redis.call('ZRANGEBYSCORE', queue_key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local silent = due and redis.call('ZRANGE', workers_key, 0, 0, 'WITHSCORES')[2]
  local at = math.min(tonumber(due) or math.huge, tonumber(silent) or math.huge, retry_at or math.huge)
  return at < math.huge and string.format('%.0f', at) or ''
end
