-- claim_allowance: how many tasks a worker may take now and, if none, when to retry
--
-- @arg   circuit_shares  text  empty, or what the circuits leave, decided over several partitions
-- @use   worker_status, circuit_breaker, blocked_types, limits
local function claim_allowance(worker_id, worker, wanted)
  local allowed, retry_at = status_of(worker[1], worker[4]) == 'active' and wanted or 0, nil
  load_blocks(worker_id, updated_circuits[worker_id] or worker[3], circuit_shares)
  if blocks['*'] and allowed > 0 then
    local left, at = trials_left('*')
    allowed, retry_at = math.min(allowed, left), at
  end
  if controls().any and allowed > 0 then
    local left, at = allowance('*')
    allowed, retry_at = math.min(allowed, left), at
  end
  return allowed, retry_at
end
