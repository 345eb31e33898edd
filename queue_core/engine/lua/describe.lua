-- describe: how one worker stands and what it declared
--
-- @flags no-writes
-- @prefix worker  hash
-- @arg   worker_id  text
-- @reply OK UNKNOWN_WORKER
local known = redis.call('HMGET', worker_keys .. worker_id, 'state', 'd')
if not known[1] or known[1] == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
return {'OK', known[1], known[2] or ''}
