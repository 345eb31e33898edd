-- circuits: from which task types a worker is held back
-- A worker's field `circuits` has `<type> open <until>` or `<type> trial <good>` for each type that is not closed; the
-- type `*` stands for all types together. An opening whose time is over is a trial without a result. One of several
-- partitions also keeps `<type> failing <instant>` of the last failure, for the claim to look at all of them.
--
-- @arg   circuit_mode       text  off, worker or type
-- @arg   circuit_window_ms  int
local function read_circuits(text)
  local found = {}
  if not text or circuit_mode == 'off' then return found end
  for scope, kind, written in string.gmatch(text, '(%S+) (%a+) (%d+)') do
    local amount = tonumber(written)
    if kind == 'open' and amount <= now then kind, amount = 'trial', 0 end
    local is_past = kind == 'failing' and amount <= now - circuit_window_ms
    if (scope == '*') == (circuit_mode == 'worker') and not is_past then
      found[scope] = {kind = kind, amount = amount}
    end
  end
  return found
end

local function circuits_text(found)
  local parts = {}
  for scope, circuit in pairs(found) do
    parts[#parts + 1] = scope .. ' ' .. circuit.kind .. ' ' .. string.format('%.0f', circuit.amount)
  end
  return table.concat(parts, ' ')
end
