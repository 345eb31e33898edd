-- pending_keys: idempotency keys whose task lies in another partition than the key
-- A key is `task fingerprint expiry`. While its batch is being written elsewhere it is pending and ends with ` pending
-- <partition> <deadline>`.
--
-- @reply KEY_PENDING
local function read_key(text)
  local task_id, fingerprint, expires_at, partition, deadline =
    string.match(text, '^(%S+) (%S+) (%d+) pending (%d+) (%d+)$')
  if not task_id then task_id, fingerprint, expires_at = string.match(text, '^(%S+) (%S+) (%d+)$') end
  if not task_id or tonumber(expires_at) <= now then return nil end
  return {task_id = task_id, fingerprint = fingerprint, expires_at = expires_at, is_pending = partition ~= nil,
    partition = partition, deadline = tonumber(deadline)}
end

local function pending_refusal(name, key)
  return {'KEY_PENDING', name, key.task_id, key.partition, key.deadline <= now and 1 or 0}
end
