-- backlog: what is ready and what is held, of everything or of what a worker's profile covers
-- For autoscalers: costs the same whatever the depth, one count a lane at most.
--
-- @flags no-writes
-- @key   queue   zset
-- @key   counts  hash
-- @arg   profile  text
-- @reply OK
-- @use   band, serving
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
