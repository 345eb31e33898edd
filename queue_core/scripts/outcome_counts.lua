-- outcome_counts: events of the last hour, in buckets
-- The transitions count them; sweep drops a bucket that is more than an hour old.
--
-- @flags no-writes
-- @key   recent  hash
-- @reply OK
return {'OK', now, redis.call('HGETALL', recent_key)}
