-- grant: permits for a claim over several partitions, from the ledger
-- What each partition uses of each limit is told by the caller, who has just looked. Whoever looked too long ago gets
-- nothing and looks again. Without a grant id it is only a question.
--
-- @flags allow-oom
-- @arg   grant_id   text  empty to ask only
-- @arg   looked_ms  int   this partition's instant of that look
-- @arg   demands    text  `scope=count scope=count`
-- @arg   is_whole   int   whether a demand that cannot be met whole is not met at all
-- @arg   part_count int   slots are granted once so many partitions were ever seen; 0 for in any case
-- @row   scope
-- @row   rate   '-' for none
-- @row   most   '-' for none
-- @row   uses   of each partition that answers: `number:running:taken:refunded`
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

-- What this look at a partition says is kept for when it is away. Without a limit of slots nobody counts what it runs.
local function note_seen(scope, known, ran, taken, refunded)
  local is_same = known.ran == ran and known.had_taken == taken and known.refunded == refunded
  if not is_same then changed_entries[scope] = true end
  known.ran, known.had_taken, known.refunded = ran, ran and taken, refunded
end

-- What runs in partitions that are away, at most; and how many were never seen, of which nobody knows.
local function count_away(entry, is_told)
  local sum, unseen = 0, part_count
  for part, known in pairs(entry.parts) do
    if known.ran then
      unseen = unseen - 1
      if not is_told[part] then sum = sum + known.ran + math.max(known.taken - known.had_taken, 0) end
    end
  end
  return sum, unseen
end

-- What runs under the limit, at most; how much of it may be counted twice; what was given back since; and in how many
-- partitions more may run.
local function add_up(scope, uses, has_slots)
  local entry, sum, doubt, refunds, is_told = entries[scope], 0, 0, 0, {}
  for part, running, taken, refunded in string.gmatch(uses, '(%d+):(%d+):(%d+):(%d+)') do
    running, taken, refunded = tonumber(running), tonumber(taken), tonumber(refunded)
    local known = part_of(entry, part)
    if now - known.at < GRANT_MS then doubt = doubt + math.max(known.taken - taken, 0) end
    refunds = refunds + math.max(refunded - known.refunded, 0)
    note_seen(scope, known, has_slots and running or nil, taken, refunded)
    sum, is_told[part] = sum + running, true
  end
  if not has_slots then return sum, doubt, refunds, 0 end
  local away, unseen = count_away(entry, is_told)
  return sum + doubt + away, doubt, refunds, unseen
end

local scopes = row_ids()
load_entries(scopes)
load_grants()
local is_late = now - looked_ms > LOOK_MS
for i = 1, row_count do
  local scope, rate, most, uses = row(i)
  local running, doubt, refunds, unseen = add_up(scope, uses, most ~= '-')
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
  local is_doubtful = is_late or doubt > 0
  replies[i + 2] = {count, rest < math.huge and string.format('%.0f', rest) or '',
    refills_at and string.format('%.0f', refills_at) or '', is_doubtful and 1 or 0, string.format('%.0f', running)}
end
if grant_id ~= '' and #granted > 0 then
  redis.call('HSET', grants_key, grant_id, string.format('%.0f', now + GRANT_MS) .. ' ' .. table.concat(granted, ' '))
end
keep_entries()
commit()
return replies
