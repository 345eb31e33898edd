-- reserve_keys: idempotency keys reserved for a batch that will be written to one partition
-- All rows or none. A key that has a task already, or stands in the batch before, is returned with that task; every
-- other key is pending from here on.
--
-- @prefix idempotency  string
-- @arg   partition           int  where the batch will be written
-- @row   task_id
-- @row   key  name and fingerprint
-- @reply OK IDEMPOTENCY_CONFLICT
-- @use   pending_keys, store_key, commit
local PENDING_MS = 10000
local replies, planned, texts = {'OK', now}, {}, {}
local expiry = string.format('%.0f pending %d %.0f', now + idempotency_ttl_ms, partition, now + PENDING_MS)

for i = 1, row_count do
  local task_id, key = row(i)
  local name, fingerprint = string.match(key, '^(%S+) (%S+)$')
  local kept = redis.call('GET', idempotency_keys .. name)
  local existing = planned[name] or kept and read_key(kept)
  if existing and existing.is_pending then return pending_refusal(name, existing) end
  if existing and existing.fingerprint ~= fingerprint then return {'IDEMPOTENCY_CONFLICT', existing.task_id} end
  replies[i + 2] = existing and existing.task_id or ''
  if not existing then
    planned[name] = {task_id = task_id, fingerprint = fingerprint}
    texts[name] = task_id .. ' ' .. fingerprint .. ' ' .. expiry
  end
end
for name, text in pairs(texts) do set_key(name, text) end
commit()
return replies
