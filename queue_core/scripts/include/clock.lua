-- clock: the queue's time, from one reading of the store's clock
-- Time never runs backwards and never stands still. Where the clock has gone back, or an epoch has raised time above
-- it, time runs at nine tenths of the clock's speed until the clock has caught up. A jump of more than an hour forward
-- is accepted only when two readings, seconds apart, agree; until then time goes on from the last instant at the
-- clock's speed. `meta.clock` is absent while time equals the clock. Else it has the last reading, how far time was
-- ahead of it (below zero: behind), and since when a jump forward is unconfirmed. `clock_offset_ms` moves the reading,
-- for tests: then every jump is accepted, and a reading before 1970 stops time.
--
-- @key  meta  hash
local MAX_JUMP_MS, CONFIRM_MS, MAX_SILENCE_MS = 3600000, 2000, 5000
local meta = redis.call('HMGET', meta_key, 'epoch', 'now_ms', 'clock_offset_ms', 'lanes_version', 'pressure',
  'waited_ms', 'clock', 'format')
local clock = redis.call('TIME')
local reading = clock[1] * 1000 + math.floor(clock[2] / 1000) + (tonumber(meta[3]) or 0)
local last_now = tonumber(meta[2]) or 0
if last_now == 0 then last_now = reading end
local now, clock_ahead, clock_note = math.max(reading, last_now), 0, nil
if meta[7] or now > reading or reading - last_now > MAX_JUMP_MS then
  local last, ahead, since = string.match(meta[7] or '', '^(%S+) (%S+) ?(%S*)$')
  last, ahead, since = tonumber(last) or reading, tonumber(ahead) or 0, tonumber(since)
  local passed, unconfirmed = math.max(reading - last, 0), ''
  if reading - last_now > MAX_JUMP_MS and not meta[3] then
    if not since or reading < since or passed > MAX_JUMP_MS then
      now, unconfirmed = last_now, reading
    elseif reading - since < CONFIRM_MS then
      now, unconfirmed = math.max(last_now, reading + ahead), since
    end
  elseif passed <= MAX_SILENCE_MS or reading < last_now then
    -- A longer silence looks the same as a clock that was put right: only its beginning counts, and nothing of it once
    -- the clock has caught up, so that no lease ends because the clock was corrected.
    now = math.max(now, last + ahead + 0.9 * math.min(passed, MAX_SILENCE_MS))
  end
  clock_ahead = now - reading
  if clock_ahead ~= 0 and reading > 0 then
    clock_note = string.format('%.0f %.1f %s', reading, clock_ahead, unconfirmed)
  end
  now = math.floor(now)
end
local now_text = string.format('%.0f', now)

-- Time is not before this instant; the next script carries the difference to the clock.
local function raise_time(least_ms)
  now = math.max(now, least_ms)
end

local function store_time()
  if clock_note then
    redis.call('HSET', meta_key, 'now_ms', now, 'clock', clock_note)
  else
    redis.call('HSET', meta_key, 'now_ms', now)
    if meta[7] then redis.call('HDEL', meta_key, 'clock') end
  end
end
