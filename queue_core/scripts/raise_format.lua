-- raise_format: from now on every process writes this format
-- Nothing lowers it: records in it may be there from the next transition on.
--
-- @flags allow-oom
-- @arg   number  int
-- @reply OK
redis.call('HSET', meta_key, 'format', math.max(number, tonumber(meta[8] or 1)))
return {'OK'}
