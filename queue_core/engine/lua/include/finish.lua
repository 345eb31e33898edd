-- finish: out of the sorted set, into a terminal state
-- The lease stays in the record, so the holder's next call is told what became of the task.
-- Without history the record lives only for its time, a dead letter's as long as it is listed; with history, until
-- that acknowledges it.
--
-- @key   dead  zset
-- @arg   unrecorded_ttl_ms   int  zero where history keeps what finished
-- @arg   dead_letter_ttl_ms  int
-- @use   move, place
local function finish(task_id, task, state, reason, field, body)
  task.ended_ms = now_text
  place_nowhere(task_id)
  move(task_id, task, state, reason, '', field, body)
  if state == 'dead_letter' then redis.call('ZADD', dead_key, now, task_id) end
  if unrecorded_ttl_ms > 0 then
    redis.call('PEXPIRE', task.key, state == 'dead_letter' and dead_letter_ttl_ms or unrecorded_ttl_ms)
  end
end
