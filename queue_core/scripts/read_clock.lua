-- read_clock: the queue's time, also of a closed store, and whether a jump of its clock is unconfirmed
-- Runs without the guard: the process that opens a store repeats it until no jump is unconfirmed.
--
-- @unguarded
-- @flags allow-oom
-- @key   meta  hash
-- @reply OK
-- @use   clock
if meta[2] then store_time() end
return {'OK', now, clock_ahead < 0 and 1 or 0}
