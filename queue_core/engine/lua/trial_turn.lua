-- trial_turn: one claim at a time gives a worker trials of a queue with several partitions
-- Kept by the partition that the worker's name belongs to. A claim whose process dies loses its turn when the time is over,
-- by which its permits are long past. A worker that is not known here has nobody to wait for.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @arg   token      text  of the claim
-- @arg   is_over    int   whether the claim gives its turn back
-- @reply OK
local TURN_MS = 15000
local key = worker_keys .. worker_id
local state, kept = unpack(redis.call('HMGET', key, 'state', 'trial_turn'))
local holder, until_ms = string.match(kept or '', '^(%S+) (%d+)$')
local is_taken = holder and holder ~= token and tonumber(until_ms) > now
if is_over == 1 then
  if holder == token then redis.call('HDEL', key, 'trial_turn') end
elseif state and not is_taken then
  redis.call('HSET', key, 'trial_turn', token .. ' ' .. string.format('%.0f', now + TURN_MS))
end
return {'OK', is_taken and 0 or 1}
