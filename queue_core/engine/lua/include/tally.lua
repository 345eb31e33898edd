-- tally: gather what happened, for the statistics of the last minute and hour
-- Outcomes are kept in buckets of ten seconds, recoveries in buckets of a minute; sweep drops old ones.
--
-- @key   recent  hash
local tallies = {}
local BUCKET_MS = {completed = 10000, failed = 10000, duration_ms = 10000}

local function tally(name, amount)
  tallies[name] = (tallies[name] or 0) + (amount or 1)
end

local function flush_tallies()
  for name, amount in pairs(tallies) do
    local width = BUCKET_MS[name] or 60000
    redis.call('HINCRBY', recent_key, name .. ':' .. math.floor(now / width) * width, amount)
  end
  tallies = {}
end
