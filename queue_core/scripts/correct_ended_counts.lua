-- correct_ended_counts: corrects the counts of ended tasks by those of history
-- Adds differences, so that tasks that end meanwhile stay counted. Of several callers that read the same counts only
-- the first changes them.
--
-- @flags allow-oom
-- @key   ended  hash
-- @arg   found_at  text  the last correction that the caller read; empty for none
-- @row   field   type and state
-- @row   amount
-- @reply OK
-- @use   task_counts
if (redis.call('HGET', ended_key, '#at') or '') ~= found_at then return {'OK', 0} end
for i = 1, row_count do
  local field, amount = row(i)
  add_to(ended_key, field, tonumber(amount))
end
redis.call('HSET', ended_key, '#at', now_text, '#epoch', epoch)
redis.call('HDEL', ended_key, '#since')
return {'OK', 1}
