-- rules: the pauses and limits of one partition, and of each when it was last said
--
-- @flags no-writes
-- @key   controls          hash
-- @key   control_instants  hash
-- @reply OK
return {'OK', now, redis.call('HGETALL', controls_key), redis.call('HGETALL', control_instants_key)}
