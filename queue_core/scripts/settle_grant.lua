-- settle_grant: ends a grant: stores what its claim took, and returns the permits it did not use
--
-- @flags allow-oom
-- @arg   grant_id  text
-- @row   scope
-- @row   rate    '-' for none
-- @row   unused  permits that were granted and not used
-- @row   takes   per partition: `number:taken`, ever
-- @reply OK
-- @use   ledger, wake, commit
local returned = 0

-- A smaller count replaces the stored one only when no reading can be that old: then the partition has lost its store
-- and counts from zero again.
local function record_taken(entry, part, taken)
  local last = part_of(entry, part)
  if now - last.at >= GRANT_MS or taken >= last.taken then last.taken, last.at = taken, now end
end

load_entries(row_ids())
for i = 1, row_count do
  local scope, rate, unused, takes = row(i)
  spend_from(scope, rate, -unused)
  returned = returned + unused
  for part, taken in string.gmatch(takes, '(%d+):(%d+)') do
    record_taken(entries[scope], part, tonumber(taken))
    changed_entries[scope] = true
  end
end
redis.call('HDEL', grants_key, grant_id)
store_entries()
if returned > 0 then announce_change() end
commit()
return {'OK'}
