-- unreadable: live tasks that were set aside, those first that are looked at again soonest
--
-- @flags no-writes
-- @key   unreadable  zset
-- @arg   most  int
-- @reply OK
return {'OK', redis.call('ZRANGE', unreadable_key, 0, most - 1)}
