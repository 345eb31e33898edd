-- standing: how a worker's circuits stand in this partition, for a verdict over all of them
-- Of each that is not closed: `<type> <kind> <amount> <held> <good> <bad>`. What is held counts as trials; the results of
-- the window are told of a type that failed in it.
--
-- @prefix worker  hash
-- @use   circuit, trials
local function latest_results(worker, scope)
  local _, good, bad = add_outcomes(redis.call('HGET', worker_keys .. worker, 'outcomes:' .. scope), 0, 0)
  return good, bad
end

local function standings(worker, known)
  local lines = {}
  for scope, circuit in pairs(read_circuits(known)) do
    local held, good, bad = 0, 0, 0
    if circuit.kind == 'trial' then held = held_in(worker, scope) end
    if circuit.kind == 'failing' then good, bad = latest_results(worker, scope) end
    lines[#lines + 1] = string.format('%s %s %.0f %d %d %d', scope, circuit.kind, circuit.amount, held, good, bad)
  end
  return lines
end
