-- enter_epoch: changes the store's epoch, or keeps it for a new run of the server
-- Runs without the guard, because it opens and closes the store. The caller must name the present epoch. Allowed
-- without free memory: a full store must be opened before its tasks can be worked off.
--
-- @unguarded
-- @flags allow-oom
-- @key   meta     hash
-- @key   workers  zset
-- @arg   present_epoch   text  empty for a store that has none
-- @arg   next_epoch      text
-- @arg   first_format    int   of a store that has none and no epoch: it is empty
-- @arg   identity        text  the run of the server that was verified
-- @arg   least_now_ms    int   the queue's time never goes back behind this instant
-- @arg   least_lanes_version  int  the version is never lower, so that no process uses lanes it cached before
-- @arg   heartbeat_grace_ms  int  no worker is declared dead sooner than this; zero changes no deadline
-- @reply OK EPOCH_MISMATCH
-- @use   clock
if (meta[1] or '') ~= present_epoch then return {'EPOCH_MISMATCH', meta[1] or ''} end
local lanes_version = math.max(tonumber(meta[4] or 0), least_lanes_version)
redis.call('HSET', meta_key, 'epoch', next_epoch, 'identity', identity,
  'lanes_version', string.format('%.0f', lanes_version))
if present_epoch == '' then redis.call('HSETNX', meta_key, 'format', first_format) end
raise_time(least_now_ms)
store_time()
if heartbeat_grace_ms > 0 then
  local due = now + heartbeat_grace_ms
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', workers_key, '-inf', due)) do
    redis.call('ZADD', workers_key, due, worker)
  end
end
return {'OK', next_epoch}
