-- served_lanes: the lanes that a worker's profile covers
-- Cached by profile with the lanes version, so that equal workers share it and only a new lane makes it stale. Polls
-- may name any capabilities, so all profiles are dropped an hour after the first was stored. Up to 64 lanes are a list,
-- whose heads are read one by one; more are a map of one character a lane.
-- A lane whose number or signature cannot be read is served by no worker and affects no other lane.
--
-- @key   served_lanes     hash
-- @key   lane_names  hash
-- @use   band
local FEW_LANES, KEPT_MS = 64, 3600000

local function set_of(names)
  local set = {}
  for name in string.gmatch(names, '[^,]+') do set[name] = true end
  return set
end

local function covered_lanes(profile)
  local types, capabilities = string.match(profile, '^(.*)|(.*)$')
  local wanted, has = types ~= '*' and set_of(types), set_of(capabilities)
  local names, covered = redis.call('HGETALL', lane_names_key), {}
  for i = 1, #names, 2 do
    local task_type, required = string.match(names[i + 1], '^(.*)|(.*)$')
    local is_lane = task_type and string.match(names[i], '^%d+$') and tonumber(names[i]) < MAX_LANES
    local serves = is_lane and (not wanted or wanted[task_type])
    for capability in pairs(serves and set_of(required) or {}) do serves = serves and has[capability] end
    if serves then covered[#covered + 1] = names[i] end
  end
  return covered
end

local function as_map(lanes)
  local marks = {}
  for lane = 1, MAX_LANES do marks[lane] = '0' end
  for _, lane in ipairs(lanes) do marks[lane + 1] = '1' end
  return table.concat(marks)
end

-- Returns a list of lanes, or nil and a map of them.
local function served_lanes(profile)
  local version = meta[4] or '0'
  local kept = redis.call('HGET', served_lanes_key, profile) or ''
  local made_for, kind, text = string.match(kept, '^(%d+) (%a+) (.*)$')
  if made_for ~= version then
    local covered = covered_lanes(profile)
    kind = #covered <= FEW_LANES and 'list' or 'map'
    text = kind == 'list' and table.concat(covered, ',') or as_map(covered)
    redis.call('HSET', served_lanes_key, profile, version .. ' ' .. kind .. ' ' .. text)
    redis.call('PEXPIRE', served_lanes_key, KEPT_MS, 'NX')
  end
  if kind == 'map' then return nil, text end
  local list = {}
  for lane in string.gmatch(text, '%d+') do list[#list + 1] = lane end
  return list
end
