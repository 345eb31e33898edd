-- settle: accept a result once; answer its repetition as the first time
-- What was accepted last is remembered with its lease, a digest and its outcome, also while the task runs anew.
--
-- @use   held_by
local function repeated(task, lease, digest)
  local mark = lease .. ',' .. digest .. ','
  return task and string.sub(task.settled, 1, #mark) == mark and string.sub(task.settled, #mark + 1) or nil
end

local function remember(task, digest, outcome)
  task.settled = task.lease .. ',' .. digest .. ',' .. outcome
end
