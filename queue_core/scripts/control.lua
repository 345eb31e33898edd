-- control: set or lift a pause or a limit, for one task type or the whole queue ('*')
-- Asks everyone to look again: a limit that was raised or a pause that ended may have made work available.
--
-- @key   controls  hash
-- @arg   scope  text
-- @row   kind     pause, rate or max
-- @row   setting  empty to lift it
-- @reply OK
-- @use   wake, commit
for i = 1, row_count do
  local kind, setting = row(i)
  if setting == '' then
    redis.call('HDEL', controls_key, kind .. ':' .. scope)
  else
    redis.call('HSET', controls_key, kind .. ':' .. scope, setting)
  end
end
tell_to_look()
commit()
return {'OK'}
