-- control: set or lift pauses and limits, for one task type or the whole queue ('*')
-- Asks everyone to look again: a limit that was raised or a pause that ended may have made work available.
-- With several partitions a rule has an instant, and what was said later holds, in whichever order it arrives: a partition
-- may have been away when it was said. A rule that was lifted leaves its instant behind for the longest absence there may be.
--
-- @key   controls          hash
-- @key   control_instants  hash
-- @arg   scope  text
-- @row   kind     pause, rate or max; or whole_rate or whole_max, said with them
-- @row   setting  empty to lift it
-- @row   instant  of several partitions, see `PartitionedControls`; empty for the only one: now
-- @reply OK
-- @use   ledger, wake, commit
local INSTANTS_PER_MS, KEPT_MS = 1024, 30 * 86400000

-- A rule that never had an instant needs none while there is one partition.
local function is_latest(field, instant)
  local kept = tonumber(redis.call('HGET', control_instants_key, field) or nil)
  if instant == '' then
    if not kept then return true end
    instant = string.format('%.0f', math.max(now * INSTANTS_PER_MS, kept + 1))
  elseif kept and kept > tonumber(instant) then
    return false
  end
  if instant ~= '0' then redis.call('HSET', control_instants_key, field, instant) end
  return true
end

-- Since it was lifted nobody counted what runs: every partition has to be seen again.
local function forget_seen()
  load_entries({scope})
  for _, known in pairs(entries[scope].parts) do
    if known.ran then
      known.ran, known.had_taken = nil, nil
      changed_entries[scope] = true
    end
  end
  keep_entries()
end

local function drop_old_instants()
  local kept = redis.call('HGETALL', control_instants_key)
  for i = 1, #kept, 2 do
    local is_old = (tonumber(kept[i + 1]) or 0) / INSTANTS_PER_MS < now - KEPT_MS
    if is_old and not redis.call('HGET', controls_key, kept[i]) then
      redis.call('HDEL', control_instants_key, kept[i])
    end
  end
end

for i = 1, row_count do
  local kind, setting, instant = row(i)
  local field = kind .. ':' .. scope
  if is_latest(string.gsub(kind, '^whole_', '') .. ':' .. scope, instant) then
    if setting == '' then
      redis.call('HDEL', controls_key, field)
    else
      if kind == 'max' and not redis.call('HGET', controls_key, field) then forget_seen() end
      redis.call('HSET', controls_key, field, setting)
    end
  end
end
drop_old_instants()
tell_to_look()
commit()
return {'OK'}
