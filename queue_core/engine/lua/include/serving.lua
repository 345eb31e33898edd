-- serving: which lanes a worker's profile covers
-- Kept per profile with the lanes version it was made for, so workers alike share it and it is made anew only
-- when a lane opens. Polls may name any capabilities, so all of them are dropped an hour after the first was made, and
-- made anew where they are still asked for. Up to 64 lanes are a list, asked about one by one; more are a map of one
-- character a lane. A lane whose number or signature cannot be read is served by nobody, and keeps nobody from others.
--
-- @key   serving     hash
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

-- A list of lanes, or nil and a map of them.
local function served_lanes(profile)
  local version = meta[4] or '0'
  local kept = redis.call('HGET', serving_key, profile) or ''
  local made_for, kind, text = string.match(kept, '^(%d+) (%a+) (.*)$')
  if made_for ~= version then
    local covered = covered_lanes(profile)
    kind = #covered <= FEW_LANES and 'list' or 'map'
    text = kind == 'list' and table.concat(covered, ',') or as_map(covered)
    redis.call('HSET', serving_key, profile, version .. ' ' .. kind .. ' ' .. text)
    redis.call('PEXPIRE', serving_key, KEPT_MS, 'NX')
  end
  if kind == 'map' then return nil, text end
  local list = {}
  for lane in string.gmatch(text, '%d+') do list[#list + 1] = lane end
  return list
end
