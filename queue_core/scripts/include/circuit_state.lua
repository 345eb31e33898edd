-- circuit_state: the task types of which a worker gets nothing, or trials only
-- A worker's field `circuits` has `<type> open <until>` or `<type> trial <good>` for each circuit that is not closed;
-- the type `*` stands for all types together. An open circuit whose time is over is a trial without results. A
-- partition of several also stores `<type> failing <instant>` of the last failure, so that a claim reads all of them.
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
