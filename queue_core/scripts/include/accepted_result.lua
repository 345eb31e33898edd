-- accepted_result: accepts a result once, and repeats the first reply when it is sent again
-- The record has lease, digest and outcome of the last accepted result, also while the task runs again. The lease is
-- left out where the record has it anyway, which is where the task ended. Later versions add fields behind a comma.
--
-- @use   check_lease
local function earlier_outcome(task, lease, digest)
  if not task or task.last_result == '' then return nil end
  local last_lease, last_digest, outcome = string.match(task.last_result, '^([^,]*),([^,]*),([^,]*)')
  if last_lease == '' then last_lease = task.lease end
  return last_lease == lease and last_digest == digest and outcome or nil
end

local function remember_result(task, digest, outcome)
  task.last_result = (outcome == 'queued' and task.lease or '') .. ',' .. digest .. ',' .. outcome
end
