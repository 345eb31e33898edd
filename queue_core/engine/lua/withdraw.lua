-- withdraw: assigned -> queued, for everything one answer to a poll handed out
-- For an answer that could not be delivered. Ignored once a later answer to the same poll went out.
--
-- @flags allow-oom
-- @prefix poll  string
-- @arg   worker_id  text
-- @arg   poll_id    text
-- @arg   answer     text
-- @reply OK
-- @use   load_task, hand_back, commit
local number, token, ids = string.match(redis.call('GET', poll_keys .. worker_id .. ':' .. poll_id) or '', '^(%d+) (%S+) (.*)$')
local released = 0
if number == answer then
  for task_id in string.gmatch(ids, '%S+') do
    local task = load_task(task_id)
    if task and task.state == 'assigned' and string.match(task.lease, '-(.*)-') == token then
      hand_back(task_id, task)
      released = released + 1
    end
  end
  commit()
end
return {'OK', released}
