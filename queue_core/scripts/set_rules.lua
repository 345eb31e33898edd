-- set_rules: sets or lifts a pause or a limit of one task type or of the whole queue ('*')
-- Wakes every waiting poll: a raised limit or an ended pause may have made tasks available.
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
announce_change()
commit()
return {'OK'}
