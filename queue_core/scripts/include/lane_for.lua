-- lane_for: the lane of a signature; opens a new one where the plan allows
-- Planning reads and opening writes, so a refusal leaves no lane behind. A lane that was empty for an hour may be given
-- to another signature. The lanes of a worker profile are cached by the lanes version, which every opening raises.
-- Events and finished tasks still name the lane by its number, so its former signature is stored with the instant it
-- ended.
--
-- @key   lanes       hash
-- @key   lane_names  hash
-- @key   lane_idle   zset
-- @key   lane_quota  hash
-- @key   heads       zset
-- @key   retired_lanes  zset
-- @key   counts      hash
-- @arg   client_id      text
-- @arg   max_new_lanes  int
-- @reply LANES_EXHAUSTED TOO_MANY_NEW_LANES
-- @use   band
local IDLE_MS, DAY_MS = 3600000, 86400000
local KEPT_MS = 31 * DAY_MS
local lane_of, opening = {}, {}

local function find_lane(signature)
  if lane_of[signature] == nil then
    lane_of[signature] = tonumber(redis.call('HGET', lanes_key, signature) or nil) or false
    if not lane_of[signature] then opening[#opening + 1] = signature end
  end
end

local function is_idle(lane)
  local left = redis.call('HMGET', counts_key, lane .. ':queued', lane .. ':assigned', lane .. ':executing')
  return not (left[1] or left[2] or left[3])
end

-- Lanes to give to other signatures; not those that this submission uses.
local function idle_lanes(wanted)
  local found, in_use = {}, {}
  for _, lane in pairs(lane_of) do in_use[tostring(lane)] = true end
  for _, lane in ipairs(redis.call('ZRANGEBYSCORE', lane_idle_key, '-inf', now - IDLE_MS)) do
    if #found == wanted then break end
    if not in_use[lane] and is_idle(lane) then found[#found + 1] = tonumber(lane) end
  end
  return found
end

local function opened_today(day)
  local quota = redis.call('HMGET', lane_quota_key, 'day', client_id)
  return quota[1] == tostring(day) and tonumber(quota[2]) or 0
end

-- Returns a refusal, or nil once every signature has a number; nothing is written yet.
local function plan_lanes()
  if #opening == 0 then return nil end
  if opened_today(math.floor(now / DAY_MS)) + #opening > max_new_lanes then
    return {'TOO_MANY_NEW_LANES', client_id, max_new_lanes}
  end
  local used = redis.call('HLEN', lane_names_key)
  local fresh = math.min(#opening, MAX_LANES - used)
  local reused = fresh < #opening and idle_lanes(#opening - fresh) or {}
  if fresh + #reused < #opening then return {'LANES_EXHAUSTED', opening[fresh + #reused + 1]} end
  for i, signature in ipairs(opening) do
    lane_of[signature] = i <= fresh and used + i - 1 or reused[i - fresh]
  end
end

local function count_opened(day)
  if redis.call('HGET', lane_quota_key, 'day') ~= tostring(day) then
    redis.call('DEL', lane_quota_key)
    redis.call('HSET', lane_quota_key, 'day', day)
  end
  redis.call('HINCRBY', lane_quota_key, client_id, #opening)
end

local function retire(lane, signature)
  redis.call('HDEL', lanes_key, signature)
  redis.call('ZADD', retired_lanes_key, now, lane .. ' ' .. now_text .. ' ' .. signature)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', retired_lanes_key, '-inf', now - KEPT_MS, 'LIMIT', 0, 10)) do
    redis.call('ZREM', retired_lanes_key, old)
  end
end

local function open_lanes()
  if #opening == 0 then return end
  for _, signature in ipairs(opening) do
    local lane = lane_of[signature]
    local before = redis.call('HGET', lane_names_key, lane)
    if before then retire(lane, before) end
    redis.call('HSET', lanes_key, signature, lane)
    redis.call('HSET', lane_names_key, lane, signature)
    redis.call('ZREM', lane_idle_key, lane)
    redis.call('ZREM', heads_key, lane)
  end
  count_opened(math.floor(now / DAY_MS))
  meta[4] = redis.call('HINCRBY', meta_key, 'lanes_version', 1)
end
