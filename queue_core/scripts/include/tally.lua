-- tally: gather what happened, for the statistics of the last minute and hour
-- Outcomes are kept in buckets of ten seconds, recoveries in buckets of a minute; sweep drops old ones. Recoveries, being
-- rare, are counted for good as well: counters must only ever grow.
--
-- @key   recent  hash
-- @key   totals  hash
-- @use   increase
local tallies = {}
local BUCKET_MS = {completed = 10000, failed = 10000, duration_ms = 10000}

local function tally(name, amount)
  tallies[name] = (tallies[name] or 0) + (amount or 1)
end

local function flush_tallies()
  for name, amount in pairs(tallies) do
    local width = BUCKET_MS[name] or 60000
    increase(recent_key, name .. ':' .. math.floor(now / width) * width, amount)
    if not BUCKET_MS[name] then increase(totals_key, name, amount) end
  end
  tallies = {}
end
