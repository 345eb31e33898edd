-- settle_keys: pending idempotency keys become valid once their batch is written, or are freed if it is not
-- Changes only keys that are still pending for the given task.
--
-- @flags allow-oom
-- @key   expiring     zset
-- @prefix idempotency  string
-- @arg   is_written  int
-- @row   task_id
-- @row   name
-- @reply OK
-- @use   pending_keys
local listed, last = {}, 0
for i = 1, row_count do
  local task_id, name = row(i)
  local key = read_key(redis.call('GET', idempotency_keys .. name) or '')
  if key and key.is_pending and key.task_id == task_id then
    if is_written == 1 then
      local text = key.task_id .. ' ' .. key.fingerprint .. ' ' .. key.expires_at
      redis.call('SET', idempotency_keys .. name, text, 'KEEPTTL')
      listed[#listed + 1] = '~' .. name
      last = math.max(last, tonumber(key.expires_at))
    else
      redis.call('DEL', idempotency_keys .. name)
    end
  end
end
if last > 0 then redis.call('ZADD', expiring_key, last, table.concat(listed, ' ')) end
return {'OK'}
