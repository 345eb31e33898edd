-- count: gather changes to the live counts, the ages and what ended; flush_counts() writes them at once
-- A count that reaches zero is deleted, so the hashes stay as small as what they count.
-- `ended` has how many tasks of a type ended last in which state: less those that came back to life or were purged, and
-- whatever has left the store since. It is set right by history from time to time (recount.lua). Types are users', and
-- come and go: beyond the most kinds, the rest of a state counts as type `*`. Sums by state stay exact.
--
-- @key   counts     hash
-- @key   ages       hash
-- @key   ended      hash
-- @key   lane_idle  zset
-- @key   controls   hash
-- @use   wake, increase
local lane_counts, age_counts, ended_counts = {}, {}, {}
-- 200 types in four states, and what is kept beside them; the four counts of all others come on top.
local MOST_ENDED_FIELDS = 804
local LIVE = {queued = true, assigned = true, executing = true}
local ENDED = {completed = true, failed = true, cancelled = true, dead_letter = true}

local function counts_of(lane)
  local counts = lane_counts[lane]
  if not counts then
    counts = {queued = 0, assigned = 0, executing = 0}
    lane_counts[lane] = counts
  end
  return counts
end

local function count_age(bucket, amount)
  age_counts[bucket] = (age_counts[bucket] or 0) + amount
end

local function count_end(task_type, state, amount)
  local field = task_type .. ' ' .. state
  ended_counts[field] = (ended_counts[field] or 0) + amount
end

local function count_move(task, to)
  local counts, from = counts_of(task.lane), task.state
  if counts[from] then counts[from] = counts[from] - 1 end
  if counts[to] then counts[to] = counts[to] + 1 end
  if from == 'queued' then count_age(task.age_bucket, -1) end
  if to == 'queued' then count_age(task.age_bucket, 1) end
end

-- So many more queued tasks like this one.
local function count_alike(task, amount)
  local counts = counts_of(task.lane)
  counts.queued = counts.queued + amount
  count_age(task.age_bucket, amount)
  tell_ready(task.lane, amount)
end

local function add_to(key, field, amount)
  if amount ~= 0 and increase(key, field, amount) == 0 then redis.call('HDEL', key, field) end
end

-- Into the count of all others of this state, or out of it; out no more than it has.
local function move_to_others(field, amount)
  local others = '* ' .. string.match(field, '%S+$')
  if amount < 0 then amount = math.max(amount, -(tonumber(redis.call('HGET', ended_key, others) or 0) or 0)) end
  add_to(ended_key, field, -amount)
  add_to(ended_key, others, amount)
end

-- The first of its kind says since when there are counts, unless history has set them right.
local function add_ended(field, amount)
  if amount == 0 then return end
  local count = increase(ended_key, field, amount)
  if count == 0 then redis.call('HDEL', ended_key, field) end
  if count == amount and not redis.call('HGET', ended_key, '#at') then
    redis.call('HSETNX', ended_key, '#since', now_text)
  end
  local is_beyond = count == amount and redis.call('HLEN', ended_key) > MOST_ENDED_FIELDS
  if count < 0 or is_beyond then move_to_others(field, count) end
end

local function note_if_idle(lane)
  local left = redis.call('HMGET', counts_key, lane .. ':queued', lane .. ':assigned', lane .. ':executing')
  if not (left[1] or left[2] or left[3]) then redis.call('ZADD', lane_idle_key, now, lane) end
end

local function flush_counts()
  local totals = {queued = 0, assigned = 0, executing = 0}
  for lane, changes in pairs(lane_counts) do
    for state, amount in pairs(changes) do
      add_to(counts_key, lane .. ':' .. state, amount)
      totals[state] = totals[state] + amount
    end
    if changes.queued + changes.assigned + changes.executing < 0 then note_if_idle(lane) end
  end
  if totals.assigned + totals.executing < 0 and redis.call('EXISTS', controls_key) == 1 then tell_to_look() end
  for state, amount in pairs(totals) do add_to(counts_key, state, amount) end
  for bucket, amount in pairs(age_counts) do
    if string.find(bucket, ':%d+$') then add_to(ages_key, bucket, amount) end
  end
  for field, amount in pairs(ended_counts) do add_ended(field, amount) end
  lane_counts, age_counts, ended_counts = {}, {}, {}
end
