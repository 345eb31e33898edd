-- set_rules: sets or lifts pauses and limits of one task type or of the whole queue ('*')
-- Wakes every waiting poll: a raised limit or an ended pause may have made tasks available.
-- With several partitions every rule has an instant, and the latest holds, in whichever order the calls arrive: a
-- partition may have been away. A lifted rule leaves its instant for the longest absence there may be.
--
-- @key   controls          hash
-- @key   control_instants  hash
-- @arg   scope  text
-- @row   kind     pause, rate or max
-- @row   setting  empty to lift it
-- @row   instant  see controls.py; empty with one partition: the rule holds from this call on
-- @reply OK
-- @use   ledger, wake, commit
local INSTANTS_PER_MS, KEPT_MS = 1024, 30 * 86400000

-- With one partition, a rule without an instant needs none.
local function is_latest(field, instant)
  local stored = tonumber(redis.call('HGET', control_instants_key, field) or nil)
  if instant == '' then
    if not stored then return true end
    instant = string.format('%.0f', math.max(now * INSTANTS_PER_MS, stored + 1))
  elseif stored and stored > tonumber(instant) then
    return false
  end
  if instant ~= '0' then redis.call('HSET', control_instants_key, field, instant) end
  return true
end

-- Running tasks were not counted while the limit was lifted: every partition must report again.
local function forget_seen()
  load_entries({scope})
  for _, counts in pairs(entries[scope].parts) do
    if counts.ran then
      counts.ran, counts.had_taken = nil, nil
      changed_entries[scope] = true
    end
  end
  store_entries()
end

local function drop_old_instants()
  local instants = redis.call('HGETALL', control_instants_key)
  for i = 1, #instants, 2 do
    local is_old = (tonumber(instants[i + 1]) or 0) / INSTANTS_PER_MS < now - KEPT_MS
    if is_old and not redis.call('HGET', controls_key, instants[i]) then
      redis.call('HDEL', control_instants_key, instants[i])
    end
  end
end

for i = 1, row_count do
  local kind, setting, instant = row(i)
  local field = kind .. ':' .. scope
  if is_latest(field, instant) then
    if setting == '' then
      redis.call('HDEL', controls_key, field)
    else
      if kind == 'max' and not redis.call('HGET', controls_key, field) then forget_seen() end
      redis.call('HSET', controls_key, field, setting)
    end
  end
end
drop_old_instants()
announce_change()
commit()
return {'OK'}
