-- read_usage: how much of each limit this partition has in use
--
-- @flags no-writes
-- @reply OK
-- @use   limit_usage
return {'OK', now, usages()}
