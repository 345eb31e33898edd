-- side_data: access keys, controls and workers, which history copies besides tasks
-- Runs under the guard, so that a store that lost its data is not copied as an empty one.
--
-- @flags no-writes
-- @key   access_keys  hash
-- @key   controls     hash
-- @key   workers      zset
-- @prefix worker  hash
-- @reply OK
local fleet = {}
for _, worker in ipairs(redis.call('ZRANGE', workers_key, 0, -1)) do
  fleet[#fleet + 1] = worker
  fleet[#fleet + 1] = redis.call('HGETALL', worker_keys .. worker)
end
return {'OK', redis.call('HGETALL', access_keys_key), redis.call('HGETALL', controls_key), fleet, meta[8]}
