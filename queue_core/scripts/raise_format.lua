-- raise_format: from now on every process writes this format
-- The format is never lowered: records in it may exist from the next transition on.
--
-- @flags allow-oom
-- @arg   number  int
-- @reply OK
redis.call('HSET', meta_key, 'format', math.max(number, meta[8]))
return {'OK'}
