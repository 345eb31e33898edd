-- count: gather changes to the live counts and ages; flush_counts() writes them at once
-- A count that reaches zero is deleted, so the hashes stay as small as what is alive.
--
-- @key   counts     hash
-- @key   ages       hash
-- @key   lane_idle  zset
-- @key   controls   hash
-- @use   wake
local lane_counts, age_counts = {}, {}
local LIVE = {queued = true, assigned = true, executing = true}

local function count(task, amount)
  local lane = lane_counts[task.lane]
  if not lane then
    lane = {queued = 0, assigned = 0, executing = 0}
    lane_counts[task.lane] = lane
  end
  lane[task.state] = lane[task.state] + amount
  if task.state == 'queued' then
    age_counts[task.age_bucket] = (age_counts[task.age_bucket] or 0) + amount
  end
end

local function add_to(key, field, amount)
  if amount ~= 0 and redis.call('HINCRBY', key, field, amount) == 0 then redis.call('HDEL', key, field) end
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
  for bucket, amount in pairs(age_counts) do add_to(ages_key, bucket, amount) end
  lane_counts, age_counts = {}, {}
end
