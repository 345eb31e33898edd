-- recounted: when history last set right what is counted as ended, and in which epoch of the store
--
-- @flags no-writes
-- @key   ended  hash
-- @reply OK
local at, since_epoch = unpack(redis.call('HMGET', ended_key, '#at', '#epoch'))
return {'OK', now, at or '', since_epoch or ''}
