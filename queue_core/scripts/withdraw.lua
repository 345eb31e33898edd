-- withdraw: assigned | executing -> queued, for everything one answer to a poll handed out
-- For an answer that could not be delivered. Ignored once a later answer to the same poll went out.
--
-- @flags allow-oom
-- @prefix poll  string
-- @arg   worker_id  text
-- @arg   poll_id    text
-- @arg   answer     text
-- @arg   handed_as  text  the state it handed them out in
-- @reply OK
-- @use   load_task, given, hand_back, commit
local number, token, ids = string.match(redis.call('GET', poll_keys .. worker_id .. ':' .. poll_id) or '', '^(%d+) (%S+) (.*)$')
local released = 0
if number == answer then
  for task_id in string.gmatch(ids, '%S+') do
    local task = load_whole(task_id)
    if is_given(task, token, handed_as) then
      hand_back(task_id, task)
      released = released + 1
    end
  end
  commit()
end
return {'OK', released}
