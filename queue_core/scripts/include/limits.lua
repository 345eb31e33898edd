-- limits: what pauses and limits allow now, for the whole queue ('*') and for each task type
-- Rates are token buckets that hold one second's worth, stored as a theoretical arrival time. Slots are counted, never
-- stored: the counts have what is assigned or executing. A partition of several obeys its pauses only: rates and slots
-- belong to the whole queue, and the ledger in partition 0 keeps them (grant.lua). This partition counts what it took
-- and refunded, and obeys the permits of a claim.
--
-- @key   controls    hash
-- @key   buckets     hash
-- @key   lane_names  hash
-- @key   counts      hash
-- @key   usage       hash
-- @arg   is_part  int  whether this is one of several partitions
-- @use   lane_type
local loaded_controls = nil
local permits, unnamed_permits = nil, math.huge

-- A rate or a maximum that is not a number limits nothing; the readers in Python log it.
local function is_rule(field, rule)
  return tonumber(rule) or not (string.find(field, '^rate:') or string.find(field, '^max:'))
end

local function controls()
  if not loaded_controls then
    local flat = redis.call('HGETALL', controls_key)
    loaded_controls = {}
    for i = 1, #flat, 2 do
      if is_rule(flat[i], flat[i + 1]) then loaded_controls[flat[i]] = flat[i + 1] end
    end
    loaded_controls.any = #flat > 0
  end
  return loaded_controls
end

local function arrival(scope)
  return math.max(tonumber(redis.call('HGET', buckets_key, scope) or nil) or 0, now)
end

local function is_limited(scope)
  local rules = controls()
  return rules['rate:' .. scope] or rules['max:' .. scope]
end

-- From `scope=count scope=count`; a limited scope without a count may take `unnamed` tasks.
local function read_permits(text, unnamed)
  permits, unnamed_permits = {}, unnamed
  for scope, count in string.gmatch(text, '(%S+)=(%d+)') do permits[scope] = tonumber(count) end
end

local function permitted(scope)
  if not permits or not is_limited(scope) then return math.huge end
  return permits[scope] or unnamed_permits
end

-- The ledger reads these counts with the next peek.
local function count_use(scope, amount)
  if amount == 0 or not is_limited(scope) then return end
  redis.call('HINCRBY', usage_key, (amount > 0 and 'taken:' or 'refunded:') .. scope, math.abs(amount))
end

local function spend_tokens(scope, amount)
  if is_part == 1 then return count_use(scope, amount) end
  local rate = tonumber(controls()['rate:' .. scope])
  if rate and amount ~= 0 then
    redis.call('HSET', buckets_key, scope, string.format('%.3f', arrival(scope) + amount * 1000 / rate))
  end
end

local function refund(lane)
  if controls().any then
    spend_tokens('*', -1)
    spend_tokens(lane_type(lane), -1)
  end
end

local function tokens(scope, rate)
  local interval, at = 1000 / rate, arrival(scope)
  local depth = math.max(interval, 1000)
  -- A thousandth of a token is tolerated: stored instants are rounded.
  local left = math.floor((now + depth - at) / interval + 0.001)
  return left, math.ceil(at + interval - depth)
end

local function running(scope)
  if scope == '*' then
    local totals = redis.call('HMGET', counts_key, 'assigned', 'executing')
    return (tonumber(totals[1]) or 0) + (tonumber(totals[2]) or 0)
  end
  local sum, names = 0, redis.call('HGETALL', lane_names_key)
  for i = 1, #names, 2 do
    if string.match(names[i + 1], '^[^|]*') == scope then
      local lane = redis.call('HMGET', counts_key, names[i] .. ':assigned', names[i] .. ':executing')
      sum = sum + (tonumber(lane[1]) or 0) + (tonumber(lane[2]) or 0)
    end
  end
  return sum
end

-- Returns how many tasks may be claimed now and, if none, when that changes by time alone.
local function allowance(scope)
  local rules = controls()
  local pause = rules['pause:' .. scope]
  local resume_at = pause and tonumber(string.match(pause, '^%d*'))
  if pause and not (resume_at and resume_at <= now) then return 0, resume_at end
  if is_part == 1 then return permitted(scope), nil end
  local left, refills_at = math.huge, nil
  if rules['rate:' .. scope] then left, refills_at = tokens(scope, tonumber(rules['rate:' .. scope])) end
  if left > 0 then refills_at = nil end
  if rules['max:' .. scope] then left = math.min(left, rules['max:' .. scope] - running(scope)) end
  return math.max(left, 0), refills_at
end
