-- redeem: a claim that had a grant is over: what it took is known, what it did not take goes back
--
-- @flags allow-oom
-- @arg   grant_id  text
-- @row   scope
-- @row   rate    '-' for none
-- @row   unused  of what was granted
-- @row   takes   of each partition it took from: `number:taken`, ever
-- @reply OK
-- @use   ledger, wake, commit
local returned = 0

-- What was known before holds against a later word of less, until no look can be that old: a partition that lost its
-- store begins at nothing again.
local function note_taken(entry, part, taken)
  local known = part_of(entry, part)
  if now - known.at >= GRANT_MS or taken >= known.taken then known.taken, known.at = taken, now end
end

load_entries(row_ids())
for i = 1, row_count do
  local scope, rate, unused, takes = row(i)
  spend_from(scope, rate, -unused)
  returned = returned + unused
  for part, taken in string.gmatch(takes, '(%d+):(%d+)') do
    note_taken(entries[scope], part, tonumber(taken))
    changed_entries[scope] = true
  end
end
redis.call('HDEL', grants_key, grant_id)
keep_entries()
if returned > 0 then tell_to_look() end
commit()
return {'OK'}
