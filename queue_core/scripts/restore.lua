-- restore: tasks as history has them, whatever the store has of them
-- Only while the store is closed for it. Writes no events: history is the source. An ended task is removed, because
-- history has it. A held task is held again by its worker, at least for the grace. A record that cannot be read is
-- skipped and returned: history keeps it for a version that can read it.
--
-- @key   dead     zset
-- @key   results  hash
-- @key   unreadable  zset
-- @prefix attempt_notes  hash
-- @arg   grace_ms  int
-- @row   task_id
-- @row   packed
-- @row   definition
-- @row   signature   of its lane; empty where the task has ended, which needs none
-- @reply OK
-- @use   load_task, lane_for, task_counts, record_buffer, place, place_live, worker_tasks, commit
for i = 1, row_count do
  local _, _, _, signature = row(i)
  if signature ~= '' then find_lane(signature) end
end
local refused = plan_lanes()
if refused then return refused end
open_lanes()

local function take_out(task_id, task)
  count_move(task, 'nowhere')
  if task.state == 'assigned' or task.state == 'executing' then unhold(task_id, task) end
  if task.state == 'dead_letter' then redis.call('ZREM', dead_key, task_id) end
end

local function put_in(task_id, task)
  local state = task.state
  task.state = 'nowhere'
  count_move(task, state)
  task.state = state
  place_live(task_id, task, now + grace_ms)
  store_record(task_id, pack_record(task))
  redis.call('HDEL', results_key, task_id)
end

local function restore_task(task_id, task, definition, signature)
  if LIVE[task.state] then
    task.lane = tostring(lane_of[signature])
    store_definition(task_id, definition)
    put_in(task_id, task)
  else
    remove_from_queue(task_id)
    delete_task(task_id)
    redis.call('DEL', attempt_notes_keys .. task_id)
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
    if before and before ~= UNREADABLE then take_out(task_id, before) end
    redis.call('ZREM', unreadable_key, task_id)
    restore_task(task_id, task, definition, signature)
  end
end
commit()
return {'OK', row_count - #unreadable, unreadable}
