-- grant: permits for a claim over several partitions, from the ledger
-- The caller passes each partition's use of each limit, which it has just read. A caller that read too long ago gets
-- nothing and reads again. Without a grant id nothing is granted: the reply only has what is left.
--
-- @flags allow-oom
-- @arg   grant_id    text  empty to grant nothing
-- @arg   read_at_ms  int   when the uses were read, by this partition's clock
-- @arg   demands     text  `scope=count scope=count`
-- @arg   is_whole    int   whether a demand is granted whole or not at all
-- @arg   part_count  int   slots are granted once so many partitions were ever read; 0 for always
-- @row   scope
-- @row   rate   '-' for none
-- @row   most   '-' for none
-- @row   uses   per partition that answers: `number:running:taken:refunded`
-- @reply OK
-- @use   ledger, commit
local replies, wanted, pending, granted = {'OK', now}, {}, {}, {}
for scope, count in string.gmatch(demands, '(%S+)=(%d+)') do wanted[scope] = tonumber(count) end

local function load_grants()
  local kept = redis.call('HGETALL', grants_key)
  for i = 1, #kept, 2 do
    local deadline, counts = string.match(kept[i + 1], '^(%d+) (.*)$')
    if tonumber(deadline) <= now then
      redis.call('HDEL', grants_key, kept[i])
    else
      for scope, count in string.gmatch(counts, '(%S+)=(%d+)') do pending[scope] = (pending[scope] or 0) + count end
    end
  end
end

-- Stores what was read of a partition, for when it is away. Without a limit of slots, running tasks are not counted.
local function store_seen(scope, last, ran, taken, refunded)
  local is_same = last.ran == ran and last.had_taken == taken and last.refunded == refunded
  if not is_same then changed_entries[scope] = true end
  last.ran, last.had_taken, last.refunded = ran, ran and taken, refunded
end

-- The most that may run in partitions that are away, and how many partitions were never read.
local function count_away(entry, is_present)
  local sum, unseen = 0, part_count
  for part, last in pairs(entry.parts) do
    if last.ran then
      unseen = unseen - 1
      if not is_present[part] then sum = sum + last.ran + math.max(last.taken - last.had_taken, 0) end
    end
  end
  return sum, unseen
end

-- The most that may run under the limit; how much of it may be counted twice; what was refunded since; and for how many
-- partitions the number of running tasks is missing.
local function add_up(scope, uses, has_slots)
  local entry, sum, uncertain, refunds, is_present = entries[scope], 0, 0, 0, {}
  for part, running, taken, refunded in string.gmatch(uses, '(%d+):(%d+):(%d+):(%d+)') do
    running, taken, refunded = tonumber(running), tonumber(taken), tonumber(refunded)
    local last = part_of(entry, part)
    if now - last.at < GRANT_MS then uncertain = uncertain + math.max(last.taken - taken, 0) end
    refunds = refunds + math.max(refunded - last.refunded, 0)
    store_seen(scope, last, has_slots and running or nil, taken, refunded)
    sum, is_present[part] = sum + running, true
  end
  if not has_slots then return sum, uncertain, refunds, 0 end
  local away, unseen = count_away(entry, is_present)
  return sum + uncertain + away, uncertain, refunds, unseen
end

local scopes = row_ids()
load_entries(scopes)
load_grants()
local is_late = now - read_at_ms > MAX_READING_AGE_MS
for i = 1, row_count do
  local scope, rate, most, uses = row(i)
  local running, uncertain, refunds, unseen = add_up(scope, uses, most ~= '-')
  spend_from(scope, rate, -refunds)
  local function left()
    local tokens, refills_at = tokens_of(scope, rate)
    local slots = most == '-' and math.huge or math.max(most - running - (pending[scope] or 0), 0)
    if unseen > 0 then slots = 0 end
    return math.min(tokens, slots), refills_at
  end
  local count = is_late and 0 or math.min(wanted[scope] or 0, (left()))
  if is_whole == 1 and count < (wanted[scope] or 0) then count = 0 end
  if count > 0 then
    granted[#granted + 1] = scope .. '=' .. string.format('%.0f', count)
    spend_from(scope, rate, count)
    pending[scope] = (pending[scope] or 0) + count
  end
  local rest, refills_at = left()
  local is_uncertain = is_late or uncertain > 0
  replies[i + 2] = {count, rest < math.huge and string.format('%.0f', rest) or '',
    refills_at and string.format('%.0f', refills_at) or '', is_uncertain and 1 or 0, string.format('%.0f', running)}
end
if grant_id ~= '' and #granted > 0 then
  redis.call('HSET', grants_key, grant_id, string.format('%.0f', now + GRANT_MS) .. ' ' .. table.concat(granted, ' '))
end
store_entries()
commit()
return replies
