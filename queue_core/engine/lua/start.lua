-- start: assigned -> executing
-- Hides the task until its execution deadline, which only an extension moves. Repeating an accepted start changes nothing.
--
-- @flags allow-oom
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, held_by, move, place, commit
local replies, deadlines, deadline_texts = {'OK', now}, {}, {}

-- Most tasks of a batch have one timeout, and so one deadline to write down.
local function deadline(timeout_ms)
  if not deadlines[timeout_ms] then
    deadlines[timeout_ms] = now + timeout_ms
    deadline_texts[timeout_ms] = string.format('%.0f', now + timeout_ms)
  end
  return deadlines[timeout_ms], deadline_texts[timeout_ms]
end

fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease = row(i)
  local task = load_task(task_id)
  local refused = refusal(task, worker_id, lease, 'assigned', 'executing')
  if refused then
    replies[i + 2] = refused
  elseif task.state == 'executing' then
    replies[i + 2] = 'OK ' .. task.visible_ms
  else
    local visible_at, visible_text = deadline(task.timeout_ms)
    task.started_ms = now_text
    place_hidden(task_id, visible_at, visible_text)
    move(task_id, task, 'executing', 'started', visible_text)
    replies[i + 2] = 'OK ' .. visible_text
  end
end
commit()
return replies
