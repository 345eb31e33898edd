-- backlog: how many tasks are ready and how many are held, in all lanes or in those of a worker profile
-- For autoscalers. The cost does not grow with the depth: at most one count a lane.
--
-- @flags no-writes
-- @key   queue   zset
-- @key   counts  hash
-- @arg   profile  text
-- @reply OK
-- @use   band, served_lanes
local function counted(prefix)
  local held = redis.call('HMGET', counts_key, prefix .. 'assigned', prefix .. 'executing')
  return (held[1] or 0) + (held[2] or 0)
end

if profile == '' then return {'OK', redis.call('ZCOUNT', queue_key, '-inf', '(0'), counted('')} end

local ready, held = 0, 0
for _, lane in ipairs(covered_lanes(profile)) do
  local floor = band_floor(lane)
  ready = ready + redis.call('ZCOUNT', queue_key, string.format('%.0f', floor),
    '(' .. string.format('%.0f', floor + BAND_WIDTH))
  held = held + counted(lane .. ':')
end
return {'OK', ready, held}
