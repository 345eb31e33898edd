-- trials: what a claim leaves out because of its worker's circuits
-- A type whose circuit is open is given nothing. Of a type on trial, what the worker holds counts as trials; counting that
-- reads what it holds, and is only done where a task of the type waits.
--
-- @key   lane_names  hash
-- @prefix held       set
-- @arg   circuit_trials  int
-- @use   circuits, limits, load_task
local SLICE = 1000
local bars, bars_any, barred_worker = {}, false, nil

-- `shares` are decided over several partitions: `<type> share <tasks>` and `<type> open <until>` for each.
local function hold_back(worker, known, shares)
  bars, barred_worker = read_circuits(shares ~= '' and shares or known), worker
  bars_any = next(bars) ~= nil
end

local function held_in(worker, scope)
  if scope == '*' then return redis.call('SCARD', held_keys .. worker) end
  local ids, count = redis.call('SMEMBERS', held_keys .. worker), 0
  for first = 1, #ids, SLICE do fetch_tasks({unpack(ids, first, math.min(first + SLICE - 1, #ids))}) end
  for _, task_id in ipairs(ids) do
    if tasks[task_id] and lane_type(tasks[task_id].lane) == scope then count = count + 1 end
  end
  return count
end

-- How many more tasks circuits allow of a type.
local function trials_left(scope)
  local bar = bars[scope]
  if not bar or bar.kind == 'failing' then return math.huge end
  if bar.kind == 'open' then return 0, bar.amount end
  if bar.kind == 'share' then return bar.amount end
  return math.max(0, circuit_trials - bar.amount - held_in(barred_worker, scope))
end

-- Until when nothing of this lane is given, or nil if something may be.
local function shut_until(lane)
  local bar = bars[lane_type(lane)]
  if not bar then return nil end
  if bar.kind == 'open' then return bar.amount end
  return bar.kind == 'share' and bar.amount == 0 and math.huge or nil
end

-- The types of many lanes in one call.
local function learn_types(entries)
  local lanes = {}
  for i, entry in ipairs(entries) do lanes[i] = entry.lane end
  local names = #lanes > 0 and redis.call('HMGET', lane_names_key, unpack(lanes)) or {}
  for i, lane in ipairs(lanes) do lane_types[lane] = string.match(names[i] or '', '^[^|]*') end
end
