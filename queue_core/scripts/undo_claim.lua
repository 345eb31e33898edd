-- undo_claim: assigned | executing -> queued, for every task of one answer to a poll
-- For an answer that could not be delivered. Ignored once a later answer to the same poll went out.
--
-- @flags allow-oom
-- @prefix poll  string
-- @arg   worker_id  text
-- @arg   poll_id    text
-- @arg   answer     text
-- @arg   handed_as  text  the state in which the answer handed tasks out
-- @reply OK
-- @use   load_task, still_claimed, release_task, commit
local number, token, ids =
  string.match(redis.call('GET', poll_keys .. worker_id .. ':' .. poll_id) or '', '^(%d+) (%S+) (.*)$')
local released = 0
if number == answer then
  for task_id in string.gmatch(ids, '%S+') do
    local task = load_whole(task_id)
    if is_still_claimed(task, token, handed_as) then
      release_task(task_id, task)
      released = released + 1
    end
  end
  commit()
end
return {'OK', released}
