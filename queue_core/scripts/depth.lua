-- depth: how many tasks are queued here, and how many were ever submitted here while the depth was near a limit
--
-- @flags no-writes
-- @key   counts  hash
-- @key   usage   hash
-- @reply OK
return {'OK', now, redis.call('HGET', counts_key, 'queued') or 0, redis.call('HGET', usage_key, 'taken:#queued') or 0}
