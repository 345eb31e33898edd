-- describe: one worker, alive or given up within the hour
--
-- @flags no-writes
-- @key   workers  zset
-- @prefix worker  hash
-- @arg   worker_id  text
-- @reply OK UNKNOWN_WORKER
-- @use   described
local known = redis.call('HMGET', worker_keys .. worker_id, 'state', 'word')
if not known[1] then return {'UNKNOWN_WORKER', worker_id} end
local deadline = redis.call('ZSCORE', workers_key, worker_id)
return {'OK', now, described(worker_id, known[1], known[2], deadline and string.format('%.0f', deadline))}
