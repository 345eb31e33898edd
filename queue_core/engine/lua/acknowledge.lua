-- acknowledge: history has every event up to here
-- Trims the outbox, and lets finished tasks go after their time, unless they have moved on since.
--
-- @flags allow-oom
-- @key   outbox  stream
-- @arg   first_kept_id  text  the lowest stream id that must stay
-- @arg   result_ttl_ms  int
-- @row   task_id
-- @row   version
-- @reply OK
-- @use   load_task, count
redis.call('XTRIM', outbox_key, 'MINID', first_kept_id)
for i = 1, row_count do
  local task_id, version = row(i)
  local task = load_task(task_id)
  if task and not LIVE[task.state] and task.version == version then
    redis.call('PEXPIRE', task.key, result_ttl_ms)
  end
end
return {'OK'}
