-- list_unreadable: live tasks that were set aside, by when they are tried again
--
-- @flags no-writes
-- @key   unreadable  zset
-- @arg   most  int
-- @reply OK
return {'OK', redis.call('ZRANGE', unreadable_key, 0, most - 1)}
