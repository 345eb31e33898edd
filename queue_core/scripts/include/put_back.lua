-- put_back: back to queued, ready at its old rank or hidden for a while
--
-- @use   move, place
local function put_back(task_id, task, reason)
  task.lease, task.queued_ms = '', now_text
  place_ready(task_id, task)
  move(task_id, task, 'queued', reason, '')
end

local function put_back_later(task_id, task, visible_at, reason, body)
  local visible_text = string.format('%.0f', visible_at)
  task.lease, task.queued_ms = '', now_text
  task.age_bucket = string.match(task.age_bucket, '^(.*):') .. ':' .. math.floor(visible_at / 60000)
  place_hidden(task_id, visible_at, visible_text)
  move(task_id, task, 'queued', reason, visible_text, body)
end
