-- next_instant: when it is worth asking for work again: the next task or worker falls due, or a limit refills
-- A worker that falls silent matters only while something is hidden, since whatever a worker holds is.
--
-- @key   queue    zset
-- @key   workers  zset
local function next_instant(again_at)
  local due = redis.call('ZRANGEBYSCORE', queue_key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local silent = due and redis.call('ZRANGE', workers_key, 0, 0, 'WITHSCORES')[2]
  local at = math.min(tonumber(due) or math.huge, tonumber(silent) or math.huge, again_at or math.huge)
  return at < math.huge and string.format('%.0f', at) or ''
end
