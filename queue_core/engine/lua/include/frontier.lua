-- frontier: the heads of the lanes a worker serves, best first, and a merge over them
-- `heads` gives a lower bound for every lane; the lane itself is only read when its bound is the best left, so a
-- claim touches about as many lanes as it takes tasks from, however many hold something.
--
-- @key   queue  zset
-- @key   heads  zset
-- @use   band, serving, limits
local PAGE = 64
local frontier, page_start, page_bound, lane_map = {}, nil, nil, nil
local changed_heads, empty_lanes = {}, {}

-- Kept in descending order, so that the best is the last and comes off without shifting the rest.
local function insert(entry)
  local low, high = 1, #frontier + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if frontier[middle].bound > entry.bound then low = middle + 1 else high = middle end
  end
  table.insert(frontier, low, entry)
end

local function load_page()
  local heads = redis.call('ZRANGE', heads_key, page_start, page_start + PAGE - 1, 'WITHSCORES')
  for i = 1, #heads, 2 do
    local lane = tonumber(heads[i])
    page_bound = tonumber(heads[i + 1])
    if string.byte(lane_map, lane + 1) == 49 then insert({lane = lane, bound = page_bound}) end
  end
  page_start = page_start + PAGE
  if #heads < 2 * PAGE then page_start = nil end
end

local function open_frontier(profile)
  local lanes
  lanes, lane_map = served_lanes(profile)
  if lane_map then
    page_start = 0
  elseif #lanes > 0 then
    local bounds = redis.call('ZMSCORE', heads_key, unpack(lanes))
    for i, lane in ipairs(lanes) do
      if bounds[i] then insert({lane = tonumber(lane), bound = tonumber(bounds[i])}) end
    end
  end
end

local function best_entry()
  while page_start and (#frontier == 0 or frontier[#frontier].bound > page_bound) do load_page() end
  return table.remove(frontier)
end

local function next_bound()
  local bound = #frontier > 0 and frontier[#frontier].bound or math.huge
  return page_start and math.min(bound, page_bound) or bound
end

-- Read on in a lane: a few at first, twice as many each time, all that are wanted when no other lane competes.
local function refill(entry, wanted)
  local size = math.min(wanted + 1, (#frontier == 0 and not page_start) and wanted + 1 or (entry.size or 4) * 2)
  local floor = band_floor(entry.lane)
  local read = entry.read or 0
  local items = redis.call('ZRANGEBYSCORE', queue_key, floor, '(' .. string.format('%.0f', floor + BAND_WIDTH),
    'WITHSCORES', 'LIMIT', read, size)
  entry.items, entry.at, entry.size, entry.read = items, 1, size, read + #items / 2
  entry.ended = #items / 2 < size
end

-- Set the entry's bound to its true head; false when the lane holds no more.
local function look(entry, wanted)
  if not entry.items or (entry.at > #entry.items and not entry.ended) then refill(entry, wanted) end
  if entry.at > #entry.items then return false end
  entry.bound = tonumber(entry.items[entry.at + 1]) - band_floor(entry.lane)
  return true
end

local function take_run(entry, taken, wanted, allowed)
  local limit, ran = next_bound(), 0
  while #taken < wanted and ran < allowed do
    if not look(entry, wanted - #taken) then
      empty_lanes[#empty_lanes + 1] = entry.lane
      return ran
    end
    if entry.bound > limit then break end
    taken[#taken + 1] = entry.items[entry.at]
    entry.at, ran = entry.at + 2, ran + 1
  end
  entry.is_open = true
  return ran
end

-- Up to `wanted` task ids in order of rank, and when it is worth asking again if limits held some back.
local function take_best(profile, wanted)
  local taken, left_for, again_at = {}, {}, nil
  open_frontier(profile)
  local entry = best_entry()
  while entry and #taken < wanted do
    local scope = controls().any and lane_type(entry.lane) or ''
    if not left_for[scope] then
      local left, at = math.huge, nil
      if scope ~= '' then left, at = allowance(scope) end
      left_for[scope] = left
      if at and (not again_at or at < again_at) then again_at = at end
    end
    entry.is_open = false
    local ran = left_for[scope] > 0 and take_run(entry, taken, wanted, left_for[scope]) or 0
    left_for[scope] = left_for[scope] - ran
    if ran > 0 and scope ~= '' then spend_tokens(scope, ran) end
    if entry.is_open then
      if look(entry, 1) then
        changed_heads[entry.lane] = entry.bound
        if left_for[scope] > 0 then insert(entry) end
      else
        empty_lanes[#empty_lanes + 1] = entry.lane
        changed_heads[entry.lane] = nil
      end
    end
    entry = #taken < wanted and best_entry() or nil
  end
  return taken, again_at
end

-- Correct the bounds of the lanes that were looked into. Only after the taken tasks have left their bands.
local function mend_heads()
  for lane, rank in pairs(changed_heads) do redis.call('ZADD', heads_key, rank, lane) end
  for _, lane in ipairs(empty_lanes) do redis.call('ZREM', heads_key, lane) end
end
