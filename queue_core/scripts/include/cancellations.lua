-- cancellations: the attempts that a worker should abandon, repeated for five minutes after they were decided
--
-- @prefix stops  zset
local STOP_MS = 300000

local function stops_of(worker_id)
  return redis.call('ZRANGEBYSCORE', stops_keys .. worker_id, now - STOP_MS, '+inf', 'LIMIT', 0, 1000)
end
