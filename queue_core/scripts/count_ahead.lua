-- count_ahead: how many ready tasks of this partition come before a task of another one: in its lane, and in all
--
-- @flags no-writes
-- @key   queue       zset
-- @key   heads       zset
-- @key   lane_names  hash
-- @arg   task_id    text
-- @arg   rank       int
-- @arg   signature  text
-- @reply OK
-- @use   band
local in_lane, in_all = 0, 0
for _, lane in ipairs(redis.call('ZRANGEBYSCORE', heads_key, '-inf', rank)) do
  local floor = band_floor(lane)
  local own = string.format('%.0f', floor + rank)
  local count = redis.call('ZCOUNT', queue_key, string.format('%.0f', floor), '(' .. own)
  for _, tied in ipairs(redis.call('ZRANGEBYSCORE', queue_key, own, own)) do
    if tied < task_id then count = count + 1 end
  end
  in_all = in_all + count
  if redis.call('HGET', lane_names_key, lane) == signature then in_lane = in_lane + count end
end
return {'OK', in_lane, in_all}
