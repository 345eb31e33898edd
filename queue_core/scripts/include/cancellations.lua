-- cancellations: the attempts that a worker should abandon, repeated for five minutes after they were decided
--
-- @prefix cancellations  zset
local STOP_MS = 300000

local function stops_of(worker_id)
  return redis.call('ZRANGEBYSCORE', cancellations_keys .. worker_id, now - STOP_MS, '+inf', 'LIMIT', 0, 1000)
end
