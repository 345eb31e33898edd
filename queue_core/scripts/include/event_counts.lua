-- event_counts: gathers events for the statistics of the last minute and hour
-- Outcomes are counted in buckets of ten seconds, recoveries in buckets of a minute; sweep drops old ones. Recoveries,
-- being rare, are also counted in `totals`: metric counters must only ever grow.
--
-- @key   recent  hash
-- @key   totals  hash
-- @use   increase
local event_totals = {}
local BUCKET_MS = {completed = 10000, failed = 10000, duration_ms = 10000}

local function count_event(name, amount)
  event_totals[name] = (event_totals[name] or 0) + (amount or 1)
end

local function flush_event_counts()
  for name, amount in pairs(event_totals) do
    local width = BUCKET_MS[name] or 60000
    increase(recent_key, name .. ':' .. math.floor(now / width) * width, amount)
    if not BUCKET_MS[name] then increase(totals_key, name, amount) end
  end
  event_totals = {}
end
