-- guard: refuses a caller of another epoch, and a store in a format that this version cannot read
-- A store that lost or changed its data has another epoch, so nothing is ever written into the wrong past.
--
-- @reply OK EPOCH_MISMATCH UNKNOWN_FORMAT
-- @use   clock
if meta[1] ~= epoch then return {'EPOCH_MISMATCH', meta[1] or ''} end
format_number = format_numbers[meta[8]]
if not format_number then return {'UNKNOWN_FORMAT', meta[8] or '1'} end
