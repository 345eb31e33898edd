-- read_clock: the queue's time, also of a store that is closed, and whether a jump of its clock is in doubt
-- Runs without the guard: whoever opens a store asks until there is no doubt left.
--
-- @unguarded
-- @flags allow-oom
-- @key   meta  hash
-- @reply OK
-- @use   clock
if meta[2] then keep_time() end
return {'OK', now, clock_ahead < 0 and 1 or 0}
