-- requeue: failed | dead_letter | cancelled -> queued
-- A retry by hand or a replay. Ranks as submitted now, with fresh budgets unless `keeps_budgets`. A task whose record
-- has left the store is created from history's copy, if it is still absent.
--
-- @key   dead     zset
-- @key   results  hash
-- @prefix attempt_notes  hash
-- @arg   task_id        text
-- @arg   sources        text  states it may come from, comma-separated
-- @arg   reason         text
-- @arg   keeps_budgets  int
-- @arg   priority       text  empty to keep
-- @arg   offset_ms      text  the new priority's offset less the task's head start, empty to keep
-- @arg   max_retries    text  empty to keep
-- @arg   timeout_ms     text  empty to keep
-- @arg   signature      text
-- @arg   kept_record      text  from history, empty where the store should have it
-- @arg   kept_definition  text
-- @arg   is_traced          int   whether the order has a span
-- @reply OK TASK_NOT_FOUND WRONG_STATE RANK_OUT_OF_RANGE
-- @use   band, load_task, lane_for, record_buffer, outbox_append, move, place, task_counts, commit
local task = load_whole(task_id)
local is_absent = not task
if is_absent and kept_record ~= '' then
  task = read_record(kept_record)
  if not has_cold(task) then task = UNREADABLE end
end
if not task then return {'TASK_NOT_FOUND'} end
if not string.find(',' .. sources .. ',', ',' .. task.state .. ',', 1, true) then return {'WRONG_STATE', task.state} end
local level = priority ~= '' and priority or string.match(task.age_bucket, '^(.*):')
local offset = offset_ms ~= '' and offset_ms
  or task.rank - (task.eligible_ms ~= '' and task.eligible_ms or task.created_ms)
if not is_rank(now + offset) then return {'RANK_OUT_OF_RANGE', task_id, string.format('%.0f', now + offset)} end
find_lane(signature)
local refused = plan_lanes()
if refused then return refused end

local was = task.state
open_lanes()
if is_absent then store_definition(task_id, kept_definition) end
redis.call('HDEL', results_key, task_id)
redis.call('HDEL', attempt_notes_keys .. task_id, 'p')
redis.call('ZREM', dead_key, task_id)
if keeps_budgets == 0 then task.retries, task.losses, task.deliveries = 0, 0, 0 end
if max_retries ~= '' then task.max_retries = max_retries end
if timeout_ms ~= '' then task.timeout_ms = timeout_ms end
task.lane, task.rank, task.age_bucket = lane_of[signature], now + offset, level .. ':' .. math.floor(now / 60000)
-- A zero marks a task that a retry or a replay put back: a scheduled task has an instant here, too. A second zero says
-- that the order has a span, which the spans of the new life may link to.
task.eligible_ms, task.queued_ms = (is_traced == 1 and '00' or '0') .. now_text, now_text
task.lease, task.worker, task.assigned_ms, task.started_ms, task.ended_ms, task.last_result = '', '', '', '', '', ''
count_end(string.match(signature, '^[^|]*'), task.state, -1)
place_ready(task_id, task)
move(task_id, task, 'queued', reason, '')
append_extra(task_id, 'from', was)
commit()
return {'OK', now, task.version}
