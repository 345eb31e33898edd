-- set_aside: what a claim or a recovery cannot deal with leaves the queue, so that it stops nobody else
-- A member whose record is gone is dropped: it cannot happen while only these scripts write. A task whose record or
-- definition this version cannot read, or whose state it does not know there, is kept in a set of its own, by when to
-- look at it again: sweep puts it back as soon as it can be read, which a later version perhaps does at once.
--
-- @key   unreadable  zset
-- @use   place, keep, tally, load_task
local LOOK_AGAIN_MS = 15000
local left_out_count = 0

local function set_aside(task_id)
  place_nowhere(task_id)
  redis.call('ZADD', unreadable_key, now + LOOK_AGAIN_MS, task_id)
  tally('unreadable')
end

local function leave_out(task_id, task)
  left_out_count = left_out_count + 1
  if task then return set_aside(task_id) end
  place_nowhere(task_id)
  keep_nothing(task_id)
  tally('orphans')
end
