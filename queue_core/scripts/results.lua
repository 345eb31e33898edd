-- results: how a worker's latest results of some task types came out
--
-- @flags no-writes
-- @prefix worker  hash
-- @arg   worker_id  text
-- @row   task_type
-- @reply OK
-- @use   standing
local counts = {'OK'}
for i = 1, row_count do
  local good, bad = latest_results(worker_id, row(i))
  counts[2 * i], counts[2 * i + 1] = good, bad
end
return counts
