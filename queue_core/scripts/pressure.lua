-- pressure: note whether the store is near its memory limit, which submissions are then refused for
--
-- @flags allow-oom
-- @key   meta  hash
-- @arg   is_high  int
-- @reply OK
redis.call('HSET', meta_key, 'pressure', is_high)
return {'OK'}
