-- lane_merge: merges the lanes that a worker serves, best head first
-- `heads` has a lower bound for every lane. A lane is read only when its bound is the best left, so a claim touches
-- about as many lanes as it takes tasks from, however many hold tasks.
--
-- @key   queue  zset
-- @key   heads  zset
-- @use   band, served_lanes, limits, blocked_types
local PAGE = 64
local candidates, page_start, page_bound, lane_map = {}, nil, nil, nil
local changed_heads, empty_lanes, allowances, earliest_retry = {}, {}, {}, math.huge
local rank_limit, taken_by_scope, returned_ranks = math.huge, {}, {}

-- In descending order, so that the best is the last and comes off without moving the rest.
local function insert(entry)
  local low, high = 1, #candidates + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if candidates[middle].bound > entry.bound then low = middle + 1 else high = middle end
  end
  table.insert(candidates, low, entry)
end

-- Leaves out lanes of types that the worker's circuits block.
local function insert_all(entries)
  if has_blocks then load_lane_types(entries) end
  for _, entry in ipairs(entries) do
    local ends_at = has_blocks and blocked_until(entry.lane)
    if ends_at then earliest_retry = math.min(earliest_retry, ends_at) else insert(entry) end
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

local function open_merge(profile)
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
  while page_start and (#candidates == 0 or candidates[#candidates].bound > page_bound) do load_page() end
  return table.remove(candidates)
end

local function next_bound()
  local bound = #candidates > 0 and candidates[#candidates].bound or math.huge
  return page_start and math.min(bound, page_bound) or bound
end

-- Reads on in a lane: a few tasks at first, twice as many each time, all wanted ones when no other lane competes.
local function refill(entry, wanted)
  local size = math.min(wanted + 1, (#candidates == 0 and not page_start) and wanted + 1 or (entry.size or 4) * 2)
  local floor = band_floor(entry.lane)
  local read = entry.read or 0
  local items = redis.call('ZRANGEBYSCORE', queue_key, floor, '(' .. string.format('%.0f', floor + BAND_WIDTH),
    'WITHSCORES', 'LIMIT', read, size)
  entry.items, entry.at, entry.size, entry.read = items, 1, size, read + #items / 2
  entry.ended = #items / 2 < size
end

-- Sets the entry's bound to its true head; false when the lane has no more tasks.
local function read_head(entry, wanted)
  if not entry.items or (entry.at > #entry.items and not entry.ended) then refill(entry, wanted) end
  if entry.at > #entry.items then return false end
  entry.bound = tonumber(entry.items[entry.at + 1]) - band_floor(entry.lane)
  return true
end

-- Takes from one lane while it has the best rank. Returns how many, and whether the lane may have more.
local function take_run(entry, taken, wanted)
  local limit, before = math.min(next_bound(), rank_limit), #taken
  while #taken < wanted do
    if not read_head(entry, wanted - #taken) then return #taken - before, false end
    if entry.bound > limit then break end
    taken[#taken + 1] = entry.items[entry.at]
    entry.at = entry.at + 2
  end
  return #taken - before, true
end

-- How many more tasks of a type pauses, limits and circuits allow. Without any rule there is one scope, without bounds.
local function left_for(scope)
  if not allowances[scope] then
    local left, at = math.huge, nil
    if scope ~= '' then left, at = allowance(scope) end
    allowances[scope] = math.min(left, trials_left(scope))
    if at then earliest_retry = math.min(earliest_retry, at) end
  end
  return allowances[scope]
end

local function take_from(entry, taken, wanted)
  local scope = (has_blocks or controls().any) and lane_type(entry.lane) or ''
  local left = left_for(scope)
  if left == 0 then return end
  local count, is_open = take_run(entry, taken, math.min(wanted, #taken + left))
  allowances[scope] = left - count
  if scope ~= '' then taken_by_scope[scope] = (taken_by_scope[scope] or 0) + count end
  if is_open and read_head(entry, 1) then
    changed_heads[entry.lane] = entry.bound
    insert(entry)
  else
    empty_lanes[#empty_lanes + 1] = entry.lane
  end
end

-- Returns up to `wanted` task ids in order of rank, and when to retry if rules held some back.
local function take_best(profile, wanted)
  local taken = {}
  open_merge(profile)
  local entry = best_entry()
  while entry and entry.bound <= rank_limit do
    take_from(entry, taken, wanted)
    entry = #taken < wanted and best_entry() or nil
  end
  return taken, earliest_retry < math.huge and earliest_retry or nil
end

-- A task that was taken stays in its lane after all.
local function return_to_lane(task)
  local scope = (has_blocks or controls().any) and lane_type(task.lane) or ''
  if scope ~= '' then taken_by_scope[scope] = (taken_by_scope[scope] or 1) - 1 end
  returned_ranks[task.lane] = math.min(returned_ranks[task.lane] or math.huge, tonumber(task.rank))
end

local function spend_taken(count)
  if not controls().any then return end
  spend_tokens('*', count)
  for scope, amount in pairs(taken_by_scope) do spend_tokens(scope, amount) end
end

-- Corrects the bounds of the lanes that were read. Only after the taken tasks have left their lanes.
local function correct_heads()
  for lane, rank in pairs(changed_heads) do redis.call('ZADD', heads_key, rank, lane) end
  for _, lane in ipairs(empty_lanes) do redis.call('ZREM', heads_key, lane) end
  for lane, rank in pairs(returned_ranks) do redis.call('ZADD', heads_key, 'LT', rank, lane) end
end
