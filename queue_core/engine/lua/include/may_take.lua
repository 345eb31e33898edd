-- may_take: how many tasks a worker may be given now, and when it is worth asking again if it is none
--
-- @use   circuit, limits
local function may_take(worker_id, worker, wanted)
  local allowed, again_at = worker[1] == 'active' and wanted or 0, nil
  local circuit = opened[worker_id] or worker[3]
  if circuit and allowed > 0 then
    local left, at = circuit_allowance(worker_id, circuit)
    allowed, again_at = math.min(allowed, left), at
  end
  if controls().any and allowed > 0 then
    local left, at = allowance('*')
    allowed, again_at = math.min(allowed, left), at
  end
  return allowed, again_at
end
