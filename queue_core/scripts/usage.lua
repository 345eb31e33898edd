-- usage: how much of each limit this partition has in use
--
-- @flags no-writes
-- @reply OK
-- @use   usage
return {'OK', now, usages()}
