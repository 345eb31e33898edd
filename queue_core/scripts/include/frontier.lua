-- frontier: the heads of the lanes a worker serves, best first, and a merge over them
-- `heads` gives a lower bound for every lane; the lane itself is only read when its bound is the best left, so a
-- claim touches about as many lanes as it takes tasks from, however many hold something.
--
-- @key   queue  zset
-- @key   heads  zset
-- @use   band, serving, limits, trials
local PAGE = 64
local frontier, page_start, page_bound, lane_map = {}, nil, nil, nil
local changed_heads, empty_lanes, allowances, held_until = {}, {}, {}, math.huge
local rank_limit, taken_by_scope, given_up = math.huge, {}, {}

-- Kept in descending order, so that the best is the last and comes off without shifting the rest.
local function insert(entry)
  local low, high = 1, #frontier + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if frontier[middle].bound > entry.bound then low = middle + 1 else high = middle end
  end
  table.insert(frontier, low, entry)
end

-- Lanes of types the worker is held back from are left out.
local function insert_all(entries)
  if bars_any then learn_types(entries) end
  for _, entry in ipairs(entries) do
    local ends_at = bars_any and shut_until(entry.lane)
    if ends_at then held_until = math.min(held_until, ends_at) else insert(entry) end
  end
end

local function load_page()
  local heads, found = redis.call('ZRANGE', heads_key, page_start, page_start + PAGE - 1, 'WITHSCORES'), {}
  for i = 1, #heads, 2 do
    local lane = tonumber(heads[i])
    page_bound = tonumber(heads[i + 1])
    if string.byte(lane_map, lane + 1) == 49 then found[#found + 1] = {lane = lane, bound = page_bound} end
  end
  insert_all(found)
  page_start = page_start + PAGE
  if #heads < 2 * PAGE then page_start = nil end
end

local function open_frontier(profile)
  local lanes
  lanes, lane_map = served_lanes(profile)
  if lane_map then
    page_start = 0
  elseif #lanes > 0 then
    local bounds, found = redis.call('ZMSCORE', heads_key, unpack(lanes)), {}
    for i, lane in ipairs(lanes) do
      if bounds[i] then found[#found + 1] = {lane = tonumber(lane), bound = tonumber(bounds[i])} end
    end
    insert_all(found)
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

-- Take from one lane while it has the best rank; says how many, and whether the lane may hold more.
local function take_run(entry, taken, wanted)
  local limit, before = math.min(next_bound(), rank_limit), #taken
  while #taken < wanted do
    if not look(entry, wanted - #taken) then return #taken - before, false end
    if entry.bound > limit then break end
    taken[#taken + 1] = entry.items[entry.at]
    entry.at = entry.at + 2
  end
  return #taken - before, true
end

-- How many more tasks pauses, limits and circuits allow of a type. Without any rule there is one scope, without bounds.
local function left_in(scope)
  if not allowances[scope] then
    local left, at = math.huge, nil
    if scope ~= '' then left, at = allowance(scope) end
    allowances[scope] = math.min(left, trials_left(scope))
    if at then held_until = math.min(held_until, at) end
  end
  return allowances[scope]
end

local function take_from(entry, taken, wanted)
  local scope = (bars_any or controls().any) and lane_type(entry.lane) or ''
  local left = left_in(scope)
  if left == 0 then return end
  local count, is_open = take_run(entry, taken, math.min(wanted, #taken + left))
  allowances[scope] = left - count
  if scope ~= '' then taken_by_scope[scope] = (taken_by_scope[scope] or 0) + count end
  if is_open and look(entry, 1) then
    changed_heads[entry.lane] = entry.bound
    insert(entry)
  else
    empty_lanes[#empty_lanes + 1] = entry.lane
  end
end

-- Up to `wanted` task ids in order of rank, and when it is worth asking again if rules held some back.
local function take_best(profile, wanted)
  local taken = {}
  open_frontier(profile)
  local entry = best_entry()
  while entry and entry.bound <= rank_limit do
    take_from(entry, taken, wanted)
    entry = #taken < wanted and best_entry() or nil
  end
  return taken, held_until < math.huge and held_until or nil
end

-- What was taken is left where it was after all.
local function give_up(task)
  local scope = (bars_any or controls().any) and lane_type(task.lane) or ''
  if scope ~= '' then taken_by_scope[scope] = (taken_by_scope[scope] or 1) - 1 end
  given_up[task.lane] = math.min(given_up[task.lane] or math.huge, tonumber(task.rank))
end

local function spend_taken(count)
  if not controls().any then return end
  spend_tokens('*', count)
  for scope, amount in pairs(taken_by_scope) do spend_tokens(scope, amount) end
end

-- Correct the bounds of the lanes that were looked into. Only after the taken tasks have left their bands.
local function mend_heads()
  for lane, rank in pairs(changed_heads) do redis.call('ZADD', heads_key, rank, lane) end
  for _, lane in ipairs(empty_lanes) do redis.call('ZREM', heads_key, lane) end
  for lane, rank in pairs(given_up) do redis.call('ZADD', heads_key, 'LT', rank, lane) end
end
