-- enter_epoch: the store goes from one epoch to another, or stays in its own under a new run of its server
-- Runs without the guard: it is what opens and closes the store. Only who knows the present epoch may change it.
-- A store without memory must be opened too, or nobody could work off what it holds.
--
-- @unguarded
-- @flags allow-oom
-- @key   meta     hash
-- @key   workers  zset
-- @arg   present_epoch   text  empty for a store that has none
-- @arg   next_epoch      text
-- @arg   identity        text  which run of which server was found sound
-- @arg   least_now_ms    int   time never goes back behind this instant
-- @arg   least_lanes_version  int  what processes remember of lanes ends with an epoch
-- @arg   least_heartbeat_due_ms  int  no worker is given up before this instant
-- @reply OK EPOCH_MISMATCH
local found = redis.call('HMGET', meta_key, 'epoch', 'now_ms', 'lanes_version')
if (found[1] or '') ~= present_epoch then return {'EPOCH_MISMATCH', found[1] or ''} end
local now_ms = math.max(tonumber(found[2] or 0), least_now_ms)
local lanes_version = math.max(tonumber(found[3] or 0), least_lanes_version)
redis.call('HSET', meta_key, 'epoch', next_epoch, 'identity', identity, 'now_ms', string.format('%.0f', now_ms),
  'lanes_version', string.format('%.0f', lanes_version))
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key, '-inf', least_heartbeat_due_ms)) do
  redis.call('ZADD', workers_key, least_heartbeat_due_ms, worker)
end
return {'OK', next_epoch}
