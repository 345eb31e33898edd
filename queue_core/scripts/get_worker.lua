-- get_worker: one worker, alive or dead for at most an hour
--
-- @flags no-writes
-- @key   workers  zset
-- @prefix worker  hash
-- @arg   worker_id  text
-- @reply OK UNKNOWN_WORKER
-- @use   worker_view
local fields = redis.call('HMGET', worker_keys .. worker_id, 'state', 'word')
if not fields[1] then return {'UNKNOWN_WORKER', worker_id} end
local deadline = redis.call('ZSCORE', workers_key, worker_id)
return {'OK', now, worker_view(worker_id, fields[1], fields[2], deadline and string.format('%.0f', deadline))}
