-- place_live: puts a live task where its record places it; a held task is held again, at least until the given instant
--
-- @use   place, worker_tasks
local function hide(task_id, task, visible_at)
  task.visible_ms = string.format('%.0f', visible_at)
  place_hidden(task_id, visible_at, task.visible_ms)
end

local function place_live(task_id, task, held_until)
  if task.state ~= 'queued' then
    hide(task_id, task, math.max(tonumber(task.visible_ms) or now, held_until))
    hold(task_id, task)
  elseif task.visible_ms ~= '' then
    hide(task_id, task, tonumber(task.visible_ms))
  else
    place_ready(task_id, task)
  end
end
