-- circuit_breaker: stops new work of a type for a worker that fails at most of it, then allows a few trials
-- The worker's field `outcomes:<type>` counts its results in six steps of the window, `<step>:<good>:<bad>` for each. A
-- failure that is not retriable, or that the handler requested, is not counted; a passed deadline counts as a failure.
-- A partition of several only counts: the claim decides over all of them. A release without these fields ignores them,
-- and counts in `outcomes:<worker>` instead.
--
-- @prefix worker      hash
-- @arg   circuit_failures    int  at least so many, and more than half, open it
-- @arg   circuit_open_ms     int
-- @arg   circuit_trials      int
-- @arg   is_part             int  whether this is one of several partitions
-- @use   circuit_state, lane_type, event_counts, wake
local CIRCUIT_STEPS = 6
local outcomes, updated_circuits = {}, {}

local function count_outcome(worker, lane, kind, amount)
  if circuit_mode == 'off' then return end
  local by_lane = outcomes[worker]
  if not by_lane then
    by_lane = {}
    outcomes[worker] = by_lane
  end
  local counts = by_lane[lane]
  if not counts then
    counts = {good = 0, bad = 0}
    by_lane[lane] = counts
  end
  counts[kind] = counts[kind] + amount
end

-- Sums over all lanes of a type.
local function by_scope(by_lane)
  local found = {}
  for lane, added in pairs(by_lane) do
    local scope = circuit_mode == 'worker' and '*' or lane_type(lane)
    local counts = found[scope] or {good = 0, bad = 0}
    counts.good, counts.bad = counts.good + added.good, counts.bad + added.bad
    found[scope] = counts
  end
  return found
end

-- Returns the counts with these added, as text, and the sums over the window.
local function add_outcomes(text, good, bad)
  local width = math.ceil(circuit_window_ms / CIRCUIT_STEPS)
  local current = math.floor(now / width)
  local steps, all_good, all_bad = {}, good, bad
  for step, kept_good, kept_bad in string.gmatch(text or '', '(%d+):(%d+):(%d+)') do
    if step * width > now - circuit_window_ms then
      all_good, all_bad = all_good + kept_good, all_bad + kept_bad
      if tonumber(step) == current then
        good, bad = good + kept_good, bad + kept_bad
      else
        steps[#steps + 1] = step .. ':' .. kept_good .. ':' .. kept_bad
      end
    end
  end
  steps[#steps + 1] = string.format('%.0f:%d:%d', current, good, bad)
  return table.concat(steps, ' '), all_good, all_bad
end

local function opened_circuit()
  count_event('circuits_opened')
  return {kind = 'open', amount = now + circuit_open_ms}
end

-- Wakes the worker's waiting poll: there may be room for another trial, or for everything.
local function after_trial(worker, circuit, good, bad)
  if bad > 0 then return opened_circuit() end
  woken_workers[worker] = true
  local is_passed = circuit.amount + good >= circuit_trials and is_part == 0
  return not is_passed and {kind = 'trial', amount = circuit.amount + good} or nil
end

-- Returns the circuit's next state (nil for closed) and the counts to store (nil to count from zero).
local function next_circuit(circuit, text, good, bad)
  local counts, all_good, all_bad = add_outcomes(text, good, bad)
  if bad == 0 then return circuit, counts end
  if is_part == 1 then return {kind = 'failing', amount = now}, counts end
  if all_bad >= circuit_failures and all_bad > all_good then return opened_circuit(), nil end
  return nil, counts
end

local function update_worker(worker, by_lane)
  local counts, fields, scopes = by_scope(by_lane), {'state', 'circuits'}, {}
  for scope in pairs(counts) do
    scopes[#scopes + 1] = scope
    fields[#fields + 1] = 'outcomes:' .. scope
  end
  local stored = redis.call('HMGET', worker_keys .. worker, unpack(fields))
  if not stored[1] or stored[1] == 'dead' then return end
  local circuits, kept = read_circuits(stored[2]), {}
  for i, scope in ipairs(scopes) do
    local good, bad, circuit = counts[scope].good, counts[scope].bad, circuits[scope]
    if circuit and circuit.kind == 'trial' then
      circuits[scope] = after_trial(worker, circuit, good, bad)
    elseif not circuit or circuit.kind ~= 'open' then
      local text
      circuits[scope], text = next_circuit(circuit, stored[i + 2], good, bad)
      kept[#kept + 1] = 'outcomes:' .. scope
      kept[#kept + 1] = text or ''
    end
  end
  updated_circuits[worker] = circuits_text(circuits)
  if updated_circuits[worker] ~= (stored[2] or '') then
    kept[#kept + 1] = 'circuits'
    kept[#kept + 1] = updated_circuits[worker]
  end
  if #kept > 0 then redis.call('HSET', worker_keys .. worker, unpack(kept)) end
end

local function update_circuits()
  for worker, by_lane in pairs(outcomes) do update_worker(worker, by_lane) end
  outcomes = {}
end
