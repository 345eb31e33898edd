-- finish: out of the sorted set, into a terminal state
-- The lease stays in the record, so the holder's next call is told what became of the task.
-- Without history the record lives only for its time; with it, until history acknowledges it.
--
-- @key   dead  zset
-- @arg   unrecorded_ttl_ms  int  zero where history keeps what finished
-- @use   move, place
local function finish(task_id, task, state, reason, field, body)
  task.ended_ms = now_text
  place_nowhere(task_id)
  move(task_id, task, state, reason, '', field, body)
  if state == 'dead_letter' then redis.call('ZADD', dead_key, now, task_id) end
  if unrecorded_ttl_ms > 0 then redis.call('PEXPIRE', task.key, unrecorded_ttl_ms) end
end
