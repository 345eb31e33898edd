-- orphan: drop a member of the set whose record is gone
-- It cannot happen while only these scripts write; should someone delete a record by hand, one stray member must
-- not stop every claim.
--
-- @use   place, keep, tally
local function drop_orphan(task_id)
  place_nowhere(task_id)
  keep_nothing(task_id)
  tally('orphans')
end
