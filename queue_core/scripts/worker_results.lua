-- worker_results: how many of a worker's latest results of some task types were good, and how many bad
--
-- @flags no-writes
-- @prefix worker  hash
-- @arg   worker_id  text
-- @row   task_type
-- @reply OK
-- @use   circuit_results
local counts = {'OK'}
for i = 1, row_count do
  local good, bad = latest_results(worker_id, row(i))
  counts[2 * i], counts[2 * i + 1] = good, bad
end
return counts
