-- trial_turn: lets one claim at a time give a worker trials, in a queue with several partitions
-- Stored in the partition that the worker id maps to. The turn of a claim whose process died expires, long after its
-- permits. A worker that is not registered here needs no turn.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @arg   token      text  of the claim
-- @arg   is_over    int   whether the claim gives its turn back
-- @reply OK
local TURN_MS = 15000
local key = worker_keys .. worker_id
local state, stored = unpack(redis.call('HMGET', key, 'state', 'trial_turn'))
local holder, until_ms = string.match(stored or '', '^(%S+) (%d+)$')
local is_taken = holder and holder ~= token and tonumber(until_ms) > now
if is_over == 1 then
  if holder == token then redis.call('HDEL', key, 'trial_turn') end
elseif state and not is_taken then
  redis.call('HSET', key, 'trial_turn', token .. ' ' .. string.format('%.0f', now + TURN_MS))
end
return {'OK', is_taken and 0 or 1}
