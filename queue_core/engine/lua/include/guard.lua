-- guard: refuse a caller opened for another epoch; read the store's clock once
-- A store that lost or changed its data has another epoch, so nothing is ever written into the wrong past.
-- The clock never runs backwards: commit() remembers the last instant that was written with.
--
-- @key   meta  hash
-- @reply OK EPOCH_MISMATCH
local meta = redis.call('HMGET', meta_key, 'epoch', 'now_ms', 'clock_offset_ms', 'lanes_version', 'pressure',
  'waited_ms')
if meta[1] ~= epoch then return {'EPOCH_MISMATCH', meta[1] or ''} end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000) + (tonumber(meta[3]) or 0)
now = math.max(now, tonumber(meta[2]) or 0)
local now_text = string.format('%.0f', now)
