-- finish: out of the sorted set, into a terminal state
-- The lease stays in the record, so the holder's next call is told what became of the task.
--
-- @key   dead  zset
-- @use   move, place, tally, lane_type
local function finish(task_id, task, state, reason, body)
  task.ended_ms = now_text
  count_end(lane_type(task.lane), state, 1)
  place_nowhere(task_id)
  move(task_id, task, state, reason, '', body)
  forget_unrecorded(task_id, task)
end

local function bury(task_id, task, reason, body)
  finish(task_id, task, 'dead_letter', reason, body)
  redis.call('ZADD', dead_key, now, task_id)
  tally('dead_letters')
end
