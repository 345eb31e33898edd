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
-- @arg   heartbeat_grace_ms  int  no worker is given up sooner than this; zero changes no deadline
-- @reply OK EPOCH_MISMATCH
-- @use   clock
if (meta[1] or '') ~= present_epoch then return {'EPOCH_MISMATCH', meta[1] or ''} end
local lanes_version = math.max(tonumber(meta[4] or 0), least_lanes_version)
redis.call('HSET', meta_key, 'epoch', next_epoch, 'identity', identity,
  'lanes_version', string.format('%.0f', lanes_version))
raise_time(least_now_ms)
keep_time()
if heartbeat_grace_ms > 0 then
  local due = now + heartbeat_grace_ms
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key, '-inf', due)) do
    redis.call('ZADD', workers_key, due, worker)
  end
end
return {'OK', next_epoch}
