-- acknowledge: history has every event below this stream id
-- Trims the outbox. Deletes finished tasks after `result_ttl_ms`, unless they have changed by then.
--
-- @flags allow-oom
-- @key   outbox  stream
-- @arg   first_kept_id  text  the lowest stream id that must stay
-- @arg   result_ttl_ms  int
-- @row   task_id
-- @row   version
-- @reply OK
-- @use   record_buffer
redis.call('XTRIM', outbox_key, 'MINID', first_kept_id)
for i = 1, row_count do
  local task_id, version = row(i)
  expire_after(result_ttl_ms, task_id, version)
end
flush_records()
return {'OK'}
