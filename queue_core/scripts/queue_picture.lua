-- queue_picture: the sorted set as a picture: the first tasks of each lane, and the hidden tasks by when they return
-- Bounded whatever the depth: lanes, tasks of a lane and tasks of a zone are each cut off, and counting is O(log N).
--
-- @flags no-writes
-- @key   queue       zset
-- @key   heads       zset
-- @key   lane_names  hash
-- @arg   max_lanes   int
-- @arg   most_ready  int  tasks shown of one lane
-- @arg   most_hidden int  tasks shown of one zone
-- @row   zone_ms    where a zone ends, from now on; rising
-- @reply OK
-- @use   band, load_task
local function exact(score)
  return string.format('%.0f', score)
end

local function slice(from, to, most)
  local found, rows, ids = redis.call('ZRANGEBYSCORE', queue_key, from, to, 'WITHSCORES', 'LIMIT', 0, most), {}, {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  fetch_tasks(ids)
  for i = 1, #found, 2 do
    local task = load_task(found[i])
    if task then
      rows[#rows + 1] = {found[i], exact(found[i + 1]), task.state, task.reason, task.age_bucket, task.lane}
    end
  end
  return {redis.call('ZCOUNT', queue_key, from, to), rows}
end

local lanes, names = {}, {}
for _, lane in ipairs(redis.call('ZRANGE', heads_key, 0, max_lanes - 1)) do
  local floor = band_floor(lane)
  lanes[#lanes + 1] = {lane, slice(exact(floor), '(' .. exact(floor + BAND_WIDTH), most_ready)}
end

local zones, from = {}, '(0'
for i = 1, row_count + 1 do
  local width = i <= row_count and tonumber((row(i)))
  local to = width and exact(now + width) or '+inf'
  zones[i] = slice(from, to, most_hidden)
  from = '(' .. to
end

local function load_name(lane)
  if not names[lane] then names[lane] = redis.call('HGET', lane_names_key, lane) or '' end
end

for _, each in ipairs(lanes) do load_name(each[1]) end
for _, zone in ipairs(zones) do
  for _, task in ipairs(zone[2]) do load_name(task[6]) end
end
local signatures = {}
for lane, signature in pairs(names) do
  signatures[#signatures + 1] = lane
  signatures[#signatures + 1] = signature
end

return {'OK', now, redis.call('ZCOUNT', queue_key, '-inf', '(0'), redis.call('ZCARD', heads_key), lanes, zones,
  signatures}
