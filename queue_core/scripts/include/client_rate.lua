-- client_rate: one client's bucket of submissions, stored as a theoretical arrival time
--
-- @key   buckets  hash
-- @arg   client_id     text
-- @arg   client_rate   number  submissions a second, 0 for no limit
-- @arg   client_burst  int
-- @reply TOO_MANY_SUBMISSIONS BATCH_ABOVE_BURST
local interval, client_field = client_rate > 0 and 1000 / client_rate, 'client:' .. client_id
local spent_until = interval and math.max(tonumber(redis.call('HGET', buckets_key, client_field) or nil) or 0, now)

-- Returns its size, the time to fill it, what is left, and the time until it is full again.
local function bucket()
  if not interval then return {} end
  local left = math.floor(client_burst - (spent_until - now) / interval + 0.001)
  return {client_burst, math.ceil(client_burst * interval), math.max(left, 0), math.ceil(spent_until - now)}
end

-- A thousandth of a submission is tolerated: stored instants are rounded.
local function rate_refusal(count)
  if not interval then return nil end
  if count > client_burst then return {'BATCH_ABOVE_BURST', count, client_burst} end
  local wait = spent_until + count * interval - now - client_burst * interval
  if wait > interval / 1000 then return {'TOO_MANY_SUBMISSIONS', client_id, math.ceil(wait), unpack(bucket())} end
end

-- A negative count gives back.
local function spend_submissions(count)
  if not interval then return end
  spent_until = math.max(spent_until + count * interval, now)
  redis.call('HSET', buckets_key, client_field, string.format('%.3f', spent_until))
end
