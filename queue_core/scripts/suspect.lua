-- suspect: a task of this worker failed in another partition, so a claim of its looks at all of them
-- A claim looks at some of many partitions, and at this one in any case. A worker that is not known here is let be.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @reply OK
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if state and state ~= 'dead' then redis.call('HSET', worker_keys .. worker_id, 'suspect_at', string.format('%.0f', now)) end
return {'OK'}
