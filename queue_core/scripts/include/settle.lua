-- settle: accept a result once; answer its repetition as the first time
-- What was accepted last is remembered as lease, digest and outcome, also while the task runs anew. The lease is left
-- out where the record keeps it, which is where the task ended. What a later version adds comes behind a comma.
--
-- @use   held_by
local function repeated(task, lease, digest)
  if not task or task.settled == '' then return nil end
  local known_lease, known_digest, outcome = string.match(task.settled, '^([^,]*),([^,]*),([^,]*)')
  if known_lease == '' then known_lease = task.lease end
  return known_lease == lease and known_digest == digest and outcome or nil
end

local function remember(task, digest, outcome)
  task.settled = (outcome == 'queued' and task.lease or '') .. ',' .. digest .. ',' .. outcome
end
