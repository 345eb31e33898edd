-- unreadable_tasks: removes from the queue what a claim or a recovery cannot process, so that it blocks no other task
-- A member without a record is dropped: it cannot exist while only these scripts write. A task whose record or
-- definition this version cannot read, or whose state is unexpected there, is kept in a set of its own, by when to try
-- it again: sweep puts it back as soon as it can be read, which a later version may do at once.
--
-- @key   unreadable  zset
-- @use   place, record_buffer, event_counts, load_task
local RETRY_READ_MS = 15000
local left_out_count = 0

local function set_aside(task_id)
  remove_from_queue(task_id)
  redis.call('ZADD', unreadable_key, now + RETRY_READ_MS, task_id)
  count_event('unreadable')
end

local function drop_or_set_aside(task_id, task)
  left_out_count = left_out_count + 1
  if task then return set_aside(task_id) end
  remove_from_queue(task_id)
  delete_task(task_id)
  count_event('orphans')
end
