-- guard: refuse a caller opened for another epoch
-- A store that lost or changed its data has another epoch, so nothing is ever written into the wrong past.
--
-- @reply OK EPOCH_MISMATCH
-- @use   clock
if meta[1] ~= epoch then return {'EPOCH_MISMATCH', meta[1] or ''} end
