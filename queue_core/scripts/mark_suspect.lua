-- mark_suspect: a task of this worker failed in another partition, so its next claim reads all partitions
-- A claim reads some of many partitions, and always this one. A worker that is not registered here is ignored.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @reply OK
local state = redis.call('HGET', worker_keys .. worker_id, 'state')
if state and state ~= 'dead' then
  redis.call('HSET', worker_keys .. worker_id, 'suspect_at', string.format('%.0f', now))
end
return {'OK'}
