-- keep_key: an idempotency key, for its time by the queue's clock
-- The text says when it ends: until sweep removes it then, readers go by that. The server's own expiry comes a month
-- later, for keys that no sweep knows of: it goes by a clock that may be wrong for a moment.
--
-- @key   expiring     zset
-- @prefix idempotency  string
-- @arg   idempotency_ttl_ms  int
local SPARE_MS = 2678400000
local kept_names = {}

-- One that is pending is not listed for sweep before its batch is written: a refused batch leaves nothing.
local function set_key(name, text)
  redis.call('SET', idempotency_keys .. name, text, 'PX', idempotency_ttl_ms + SPARE_MS)
end

local function keep_key(name, text)
  set_key(name, text)
  kept_names[#kept_names + 1] = '~' .. name
end

local function flush_keys()
  if #kept_names > 0 then
    redis.call('ZADD', expiring_key, now + idempotency_ttl_ms, table.concat(kept_names, ' '))
  end
end
