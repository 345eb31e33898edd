-- ledger: what the limits of a queue with several partitions have let out, all in one place
-- An entry a scope: its rate's theoretical arrival time, and of each partition what was known last: how many tasks it
-- took under the limit, when that was known, and how many it gave back; and of the last look at it, how many tasks it ran
-- and had taken. A grant holds tokens and slots for a claim that is under way; of a process that died they come back when
-- its time is over. A release that does not know the last two leaves them out: the partition has to be seen again.
-- What a partition runs is counted there and is told with every question; while it is away, the last look counts. Only a look that is older than a claim that
-- has ended since may miss tasks: those it cannot know of yet are added, for as long as a look may take.
--
-- @key   ledger  hash
-- @key   grants  hash
local GRANT_MS, LOOK_MS = 15000, 5000
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

local function keep_entries()
  local words = {}
  for scope in pairs(changed_entries) do
    local entry = entries[scope]
    local parts = {string.format('%.3f', entry.arrival)}
    for part, known in pairs(entry.parts) do
      local seen = known.ran and string.format(':%.0f:%.0f', known.ran, known.had_taken) or ''
      parts[#parts + 1] = string.format('%s:%.0f:%.0f:%.0f', part, known.taken, known.at, known.refunded) .. seen
    end
    words[#words + 1] = scope
    words[#words + 1] = table.concat(parts, ' ')
  end
  if #words > 0 then redis.call('HSET', ledger_key, unpack(words)) end
end

-- A negative amount gives tokens back; more than a full bucket is never had.
local function spend_from(scope, rate, amount)
  if rate == '-' or amount == 0 then return end
  local entry = entries[scope]
  entry.arrival = math.max(entry.arrival, now) + amount * 1000 / rate
  changed_entries[scope] = true
end

-- How many tokens there are, and when there is one. A thousandth of a token is forgiven: instants are rounded.
local function tokens_of(scope, rate)
  if rate == '-' then return math.huge, nil end
  local interval, at = 1000 / rate, math.max(entries[scope].arrival, now)
  local depth = math.max(interval, 1000)
  local left = math.max(math.floor((now + depth - at) / interval + 0.001), 0)
  return left, left == 0 and math.ceil(at + interval - depth) or nil
end
