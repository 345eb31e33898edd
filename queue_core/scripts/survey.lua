-- survey: what waiting pollers could take now, and when it is worth looking again
-- One process asks once a second for all its pollers, so that a lost notification costs at most that second. What a
-- pause or a limit holds back does not count: nobody should be woken for it. It keeps wake-ups coming.
--
-- @flags allow-oom
-- @key   queue    zset
-- @key   heads    zset
-- @key   workers  zset
-- @arg   most  int  enough to wake everyone
-- @reply OK
-- @use   band, limits, wake, usage
local ready, next_at = {}, math.huge

local function note(at)
  if at and at > now then next_at = math.min(next_at, at) end
end

local function allowed(scope)
  local left, again_at = allowance(scope)
  if left == 0 then note(again_at) end
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
expect_wakes()
return {'OK', now, meta[4] or '0', next_at < math.huge and string.format('%.0f', next_at) or '', ready,
  is_part == 1 and usages() or {}}
