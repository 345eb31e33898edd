-- set_memory_flag: whether the store is near its memory limit; submissions are refused while it is
--
-- @flags allow-oom
-- @key   meta  hash
-- @arg   is_high  int
-- @reply OK
redis.call('HSET', meta_key, 'pressure', is_high)
return {'OK'}
