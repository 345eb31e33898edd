-- still_claimed: whether a task is still as one answer to a poll handed it out
-- All leases of an answer have its token. Tasks are handed out assigned, or executing where the worker requested that.
--
local function is_still_claimed(task, token, handed_as)
  return task and (task.state == 'assigned' or task.state == handed_as) and string.match(task.lease, '-(.*)-') == token
end
