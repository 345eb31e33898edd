-- blocked_types: what a claim leaves out because of its worker's circuits
-- A type whose circuit is open gets nothing. Of a type on trial, tasks that the worker holds count as trials; counting
-- them reads all that it holds, and is only done where a task of the type is ready.
--
-- @key   lane_names  hash
-- @prefix worker_tasks       set
-- @arg   circuit_trials  int
-- @use   circuit_state, limits, load_task
local SLICE = 1000
local blocks, has_blocks, blocked_worker = {}, false, nil

-- `shares` are decided over several partitions: `<type> share <tasks>` and `<type> open <until>` for each.
local function load_blocks(worker, written, shares)
  blocks, blocked_worker = read_circuits(shares ~= '' and shares or written), worker
  has_blocks = next(blocks) ~= nil
end

local function count_held(worker, scope)
  if scope == '*' then return redis.call('SCARD', worker_tasks_keys .. worker) end
  local ids, count = redis.call('SMEMBERS', worker_tasks_keys .. worker), 0
  for first = 1, #ids, SLICE do fetch_tasks({unpack(ids, first, math.min(first + SLICE - 1, #ids))}) end
  for _, task_id in ipairs(ids) do
    if tasks[task_id] and lane_type(tasks[task_id].lane) == scope then count = count + 1 end
  end
  return count
end

-- How many more tasks of a type circuits allow.
local function trials_left(scope)
  local block = blocks[scope]
  if not block or block.kind == 'failing' then return math.huge end
  if block.kind == 'open' then return 0, block.amount end
  if block.kind == 'share' then return block.amount end
  return math.max(0, circuit_trials - block.amount - count_held(blocked_worker, scope))
end

-- Until when the lane is blocked, or nil if it is not.
local function blocked_until(lane)
  local block = blocks[lane_type(lane)]
  if not block then return nil end
  if block.kind == 'open' then return block.amount end
  return block.kind == 'share' and block.amount == 0 and math.huge or nil
end

-- The types of many lanes in one call.
local function load_lane_types(entries)
  local lanes = {}
  for i, entry in ipairs(entries) do lanes[i] = entry.lane end
  local names = #lanes > 0 and redis.call('HMGET', lane_names_key, unpack(lanes)) or {}
  for i, lane in ipairs(lanes) do lane_types[lane] = string.match(names[i] or '', '^[^|]*') end
end
