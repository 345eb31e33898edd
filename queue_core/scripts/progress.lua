-- progress: of an executing task, so far
-- Stored beside the record, with its attempt and a sequence number: a report that arrives late is ignored.
--
-- @prefix attempt_notes  hash
-- @arg   worker_id  text
-- @row   task_id
-- @row   lease
-- @row   sequence
-- @row   percent
-- @row   message
-- @reply OK TASK_NOT_FOUND WRONG_STATE STALE_LEASE
-- @use   load_task, check_lease, commit
local replies = {'OK', now}
fetch_tasks(row_ids())
for i = 1, row_count do
  local task_id, lease, sequence, percent, message = row(i)
  local task = load_task(task_id)
  local refused = lease_refusal(task, worker_id, lease, 'executing')
  if not refused then
    local attempt, last = string.match(redis.call('HGET', attempt_notes_keys .. task_id, 'p') or '', '^(%d+)|(%d+)|')
    if attempt ~= task.attempt or tonumber(last) < tonumber(sequence) then
      redis.call('HSET', attempt_notes_keys .. task_id, 'p',
        task.attempt .. '|' .. sequence .. '|' .. percent .. '|' .. message)
    end
  end
  replies[i + 2] = refused or 'OK'
end
commit()
return replies
