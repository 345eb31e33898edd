-- finish: out of the sorted set, into a terminal state
-- The lease stays in the record, so that the holder's next call is refused with the final state.
--
-- @key   dead  zset
-- @use   move, place, event_counts, lane_type
local function finish(task_id, task, state, reason, body)
  task.ended_ms = now_text
  count_end(lane_type(task.lane), state, 1)
  remove_from_queue(task_id)
  move(task_id, task, state, reason, '', body)
  expire_without_history(task_id, task)
end

local function make_dead_letter(task_id, task, reason, body)
  finish(task_id, task, 'dead_letter', reason, body)
  redis.call('ZADD', dead_key, now, task_id)
  count_event('dead_letters')
end
