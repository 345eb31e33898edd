-- may_take: how many tasks a worker may be given now, and when it is worth asking again if it is none
--
-- @arg   circuit_shares  text  empty, or what the circuits leave, decided over several partitions
-- @use   status, circuit, trials, limits
local function may_take(worker_id, worker, wanted)
  local allowed, again_at = status_of(worker[1], worker[4]) == 'active' and wanted or 0, nil
  hold_back(worker_id, judged[worker_id] or worker[3], circuit_shares)
  if bars['*'] and allowed > 0 then
    local left, at = trials_left('*')
    allowed, again_at = math.min(allowed, left), at
  end
  if controls().any and allowed > 0 then
    local left, at = allowance('*')
    allowed, again_at = math.min(allowed, left), at
  end
  return allowed, again_at
end
