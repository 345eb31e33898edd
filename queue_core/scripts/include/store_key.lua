-- store_key: an idempotency key, for its time by the queue's clock
-- The text has the instant of its end: readers go by that until sweep deletes the key. The server's own expiry, for
-- keys that sweep does not list, comes a month later: it goes by a clock that may be wrong for a moment.
--
-- @key   expiring     zset
-- @prefix idempotency  string
-- @arg   idempotency_ttl_ms  int
local SPARE_MS = 2678400000
local stored_names = {}

-- A pending key is not listed for sweep before its batch is written: a refused batch leaves nothing behind.
local function set_key(name, text)
  redis.call('SET', idempotency_keys .. name, text, 'PX', idempotency_ttl_ms + SPARE_MS)
end

local function store_key(name, text)
  set_key(name, text)
  stored_names[#stored_names + 1] = '~' .. name
end

local function flush_keys()
  if #stored_names > 0 then
    redis.call('ZADD', expiring_key, now + idempotency_ttl_ms, table.concat(stored_names, ' '))
  end
end
