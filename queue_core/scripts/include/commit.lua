-- commit: write everything that was gathered, remember the instant, wake who waits
-- A script that goes on after a first part flushes that part and commits at its end: pollers hear of it once.
--
-- @use   clock, keep, place, count, tally, emit, hold, wake
local function flush()
  flush_kept()
  flush_places()
  flush_counts()
  flush_tallies()
  flush_events()
  flush_holds()
end

local function commit()
  flush()
  keep_time()
  publish_wakes()
end
