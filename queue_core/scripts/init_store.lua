-- init_store: makes an empty store a queue of the given epoch
-- Runs without the guard, because there is no epoch yet. A store that has an epoch keeps it.
--
-- @unguarded
-- @key   meta  hash
-- @arg   new_epoch    text
-- @arg   first_format  int
-- @reply OK
if redis.call('HSETNX', meta_key, 'epoch', new_epoch) == 1 then
  redis.call('HSET', meta_key, 'format', first_format)
end
return {'OK', redis.call('HGET', meta_key, 'epoch')}
