-- tallies: what happened lately, bucket by bucket
-- The transitions counted it; a bucket more than an hour old is dropped by sweep.
--
-- @flags no-writes
-- @key   recent  hash
-- @reply OK
return {'OK', now, redis.call('HGETALL', recent_key)}
