-- restore: tasks as history knows them, whatever the store has of them
-- Only while the store is closed for it. No event is written: history is where this comes from. A task that ended is
-- taken out, because history answers for it. What a worker held it holds again, at least for the grace. A record that
-- cannot be read is left out and told: history keeps it for a version that can.
--
-- @key   dead     zset
-- @key   results  hash
-- @key   unreadable  zset
-- @prefix notes  hash
-- @arg   grace_ms  int
-- @row   task_id
-- @row   packed
-- @row   definition
-- @row   signature   of its lane; empty where the task has ended, which needs none
-- @reply OK
-- @use   load_task, lane_for, count, keep, place, put, hold, commit
for i = 1, row_count do
  local _, _, _, signature = row(i)
  if signature ~= '' then find_lane(signature) end
end
local refused = plan_lanes()
if refused then return refused end
open_lanes()

local function leave(task_id, task)
  count_move(task, 'nowhere')
  if task.state == 'assigned' or task.state == 'executing' then unhold(task_id, task) end
  if task.state == 'dead_letter' then redis.call('ZREM', dead_key, task_id) end
end

local function enter(task_id, task)
  local state = task.state
  task.state = 'nowhere'
  count_move(task, state)
  task.state = state
  put(task_id, task, now + grace_ms)
  keep_record(task_id, pack_record(task))
  redis.call('HDEL', results_key, task_id)
end

local function bring(task_id, task, definition, signature)
  if LIVE[task.state] then
    task.lane = tostring(lane_of[signature])
    keep_definition(task_id, definition)
    enter(task_id, task)
  else
    place_nowhere(task_id)
    keep_nothing(task_id)
    redis.call('DEL', notes_keys .. task_id)
    if task.state == 'dead_letter' then redis.call('ZADD', dead_key, task.ended_ms, task_id) end
  end
end

local unreadable = {}
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, packed, definition, signature = row(i)
  local before, task = load_task(task_id), read_record(packed)
  if not has_cold(task) or not (LIVE[task.state] or ENDED[task.state]) then
    unreadable[#unreadable + 1] = task_id
  else
    if before and before ~= UNREADABLE then leave(task_id, before) end
    redis.call('ZREM', unreadable_key, task_id)
    bring(task_id, task, definition, signature)
  end
end
commit()
return {'OK', row_count - #unreadable, unreadable}
