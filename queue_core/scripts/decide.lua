-- decide: open or close circuits of a worker, as a claim over several partitions found
-- What happened here since goes before: a circuit that opened again is not closed.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @arg   counts     int   whether to count what is opened: one partition does
-- @row   task_type
-- @row   kind       open or closed
-- @row   until_ms
-- @reply OK UNKNOWN_WORKER
-- @use   circuits, tally, wake, commit
local known = redis.call('HMGET', worker_keys .. worker_id, 'state', 'circuits')
if not known[1] or known[1] == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
local circuits, spent = read_circuits(known[2]), {}
for i = 1, row_count do
  local scope, kind, until_ms = row(i)
  local circuit = circuits[scope]
  local is_open = circuit and circuit.kind == 'open'
  if kind == 'open' and not (is_open and circuit.amount >= tonumber(until_ms)) then
    circuits[scope] = {kind = 'open', amount = tonumber(until_ms)}
    if counts == 1 then tally('circuits_opened') end
  elseif kind == 'closed' and not is_open then
    circuits[scope] = nil
    stopped_workers[worker_id] = true
  end
  spent[#spent + 1] = 'outcomes:' .. scope
end
redis.call('HSET', worker_keys .. worker_id, 'circuits', circuits_text(circuits))
redis.call('HDEL', worker_keys .. worker_id, unpack(spent))
commit()
return {'OK'}
