-- scan_ready: what waiting polls could take now, and when the next scan is worthwhile
-- A process calls it once a second for all its waiting polls, so that a lost notification costs at most that second.
-- Tasks held back by a pause or a limit do not count: no poll should wake for them. Also requests wake-ups, so that
-- they are published.
--
-- @flags allow-oom
-- @key   queue    zset
-- @key   heads    zset
-- @key   workers  zset
-- @arg   most  int  enough to wake every waiting poll
-- @reply OK
-- @use   band, limits, wake, limit_usage
local ready, next_at = {}, math.huge

local function consider(at)
  if at and at > now then next_at = math.min(next_at, at) end
end

local function allowed(scope)
  local left, retry_at = allowance(scope)
  if left == 0 then consider(retry_at) end
  return left
end

local has_rules = controls().any
local left_at_all = has_rules and allowed('*') or math.huge
for _, lane in ipairs(redis.call('ZRANGE', heads_key, 0, -1)) do
  local floor = band_floor(lane)
  local count = redis.call('ZCOUNT', queue_key, string.format('%.0f', floor),
    '(' .. string.format('%.0f', floor + BAND_WIDTH))
  if has_rules and count > 0 then count = math.min(count, left_at_all, allowed(lane_type(lane))) end
  if count > 0 then ready[#ready + 1] = lane .. ':' .. math.min(count, most) end
end

local hidden = redis.call('ZRANGEBYSCORE', queue_key, '(0', '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local silent = redis.call('ZRANGE', workers_key, 0, 0, 'WITHSCORES')
next_at = math.min(next_at, tonumber(hidden[2]) or math.huge, tonumber(silent[2]) or math.huge)
request_wakes()
return {'OK', now, meta[4] or '0', next_at < math.huge and string.format('%.0f', next_at) or '', ready,
  is_part == 1 and usages() or {}}
