-- acknowledge: history has every event up to here
-- Trims the outbox, and has finished tasks forgotten after their time, unless they have moved on by then.
--
-- @flags allow-oom
-- @key   outbox  stream
-- @arg   first_kept_id  text  the lowest stream id that must stay
-- @arg   result_ttl_ms  int
-- @row   task_id
-- @row   version
-- @reply OK
-- @use   keep
redis.call('XTRIM', outbox_key, 'MINID', first_kept_id)
for i = 1, row_count do
  local task_id, version = row(i)
  forget_after(result_ttl_ms, task_id, version)
end
flush_kept()
return {'OK'}
