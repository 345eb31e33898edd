-- ledger: what the limits of a queue with several partitions have let out, in one place
-- An entry a scope: its rate's theoretical arrival time, then for each partition how many tasks it took under the
-- limit, when that was stored, and how many it refunded; and from the last reading of it, how many tasks it ran and had
-- taken. A release without the last two leaves them out: the partition has to be read again. A grant holds tokens and
-- slots for a claim under way; those of a process that died come back when the grant's time is over. Running tasks are
-- counted in their partition and passed with every call; for a partition that is away the last reading counts. Only a
-- reading older than a claim that has ended since may miss tasks: these are added, for as long as a reading may take.
--
-- @key   ledger  hash
-- @key   grants  hash
local GRANT_MS, MAX_READING_AGE_MS = 15000, 5000
local entries, changed_entries = {}, {}

local function load_entries(scopes)
  if #scopes == 0 then return end
  local kept = redis.call('HMGET', ledger_key, unpack(scopes))
  for i, scope in ipairs(scopes) do
    local arrival, parts = string.match(kept[i] or '', '^(%S+) ?(.*)$')
    local entry = {arrival = tonumber(arrival) or 0, parts = {}}
    for part, taken, at, refunded, seen in string.gmatch(parts or '', '(%d+):(%d+):(%d+):(%d+)(%S*)') do
      local ran, had_taken = string.match(seen, '^:(%d+):(%d+)')
      entry.parts[part] = {taken = tonumber(taken), at = tonumber(at), refunded = tonumber(refunded),
        ran = tonumber(ran), had_taken = tonumber(had_taken)}
    end
    entries[scope] = entry
  end
end

local function part_of(entry, part)
  entry.parts[part] = entry.parts[part] or {taken = 0, at = 0, refunded = 0}
  return entry.parts[part]
end

local function store_entries()
  local words = {}
  for scope in pairs(changed_entries) do
    local entry = entries[scope]
    local parts = {string.format('%.3f', entry.arrival)}
    for part, last in pairs(entry.parts) do
      local seen = last.ran and string.format(':%.0f:%.0f', last.ran, last.had_taken) or ''
      parts[#parts + 1] = string.format('%s:%.0f:%.0f:%.0f', part, last.taken, last.at, last.refunded) .. seen
    end
    words[#words + 1] = scope
    words[#words + 1] = table.concat(parts, ' ')
  end
  if #words > 0 then redis.call('HSET', ledger_key, unpack(words)) end
end

-- A negative amount returns tokens; a bucket never has more than it holds.
local function spend_from(scope, rate, amount)
  if rate == '-' or amount == 0 then return end
  local entry = entries[scope]
  entry.arrival = math.max(entry.arrival, now) + amount * 1000 / rate
  changed_entries[scope] = true
end

-- Returns how many tokens there are and, if none, when there is one. A thousandth of a token is tolerated: stored
-- instants are rounded.
local function tokens_of(scope, rate)
  if rate == '-' then return math.huge, nil end
  local interval, at = 1000 / rate, math.max(entries[scope].arrival, now)
  local depth = math.max(interval, 1000)
  local left = math.max(math.floor((now + depth - at) / interval + 0.001), 0)
  return left, left == 0 and math.ceil(at + interval - depth) or nil
end
