-- circuit_results: a worker's circuits in this partition, for a decision over all of them
-- For each that is not closed: `<type> <kind> <amount> <held> <good> <bad>`. Held tasks count as trials. The results of
-- the window are filled in for a type that failed in it.
--
-- @prefix worker  hash
-- @use   circuit_breaker, blocked_types
local function latest_results(worker, scope)
  local _, good, bad = add_outcomes(redis.call('HGET', worker_keys .. worker, 'outcomes:' .. scope), 0, 0)
  return good, bad
end

local function circuit_results(worker, circuits)
  local lines = {}
  for scope, circuit in pairs(read_circuits(circuits)) do
    local held, good, bad = 0, 0, 0
    if circuit.kind == 'trial' then held = count_held(worker, scope) end
    if circuit.kind == 'failing' then good, bad = latest_results(worker, scope) end
    lines[#lines + 1] = string.format('%s %s %.0f %d %d %d', scope, circuit.kind, circuit.amount, held, good, bad)
  end
  return lines
end
