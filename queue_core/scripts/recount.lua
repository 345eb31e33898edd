-- recount: what is counted as ended is set right by history
-- A difference is added, so that what ends meanwhile is counted all the same. Only by the first of those who found it.
--
-- @flags allow-oom
-- @key   ended  hash
-- @arg   found_at  text  when it was last set right, as the caller found it; empty for never
-- @row   field   type and state, or nothing
-- @row   amount
-- @reply OK
-- @use   count
if (redis.call('HGET', ended_key, '#at') or '') ~= found_at then return {'OK', 0} end
for i = 1, row_count do
  local field, amount = row(i)
  add_to(ended_key, field, tonumber(amount))
end
redis.call('HSET', ended_key, '#at', now_text, '#epoch', epoch)
redis.call('HDEL', ended_key, '#since')
return {'OK', 1}
