-- set_circuits: opens or closes circuits of a worker, as a claim over several partitions decided
-- A newer change in this partition wins: a circuit that opened again since is not closed.
--
-- @flags allow-oom
-- @prefix worker  hash
-- @arg   worker_id  text
-- @arg   counts     int   whether to count openings in the statistics: only one partition does
-- @row   task_type
-- @row   kind       open or closed
-- @row   until_ms
-- @reply OK UNKNOWN_WORKER
-- @use   circuit_state, event_counts, wake, commit
local fields = redis.call('HMGET', worker_keys .. worker_id, 'state', 'circuits')
if not fields[1] or fields[1] == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
local circuits, cleared = read_circuits(fields[2]), {}
for i = 1, row_count do
  local scope, kind, until_ms = row(i)
  local circuit = circuits[scope]
  local is_open = circuit and circuit.kind == 'open'
  if kind == 'open' and not (is_open and circuit.amount >= tonumber(until_ms)) then
    circuits[scope] = {kind = 'open', amount = tonumber(until_ms)}
    if counts == 1 then count_event('circuits_opened') end
  elseif kind == 'closed' and not is_open then
    circuits[scope] = nil
    woken_workers[worker_id] = true
  end
  cleared[#cleared + 1] = 'outcomes:' .. scope
end
redis.call('HSET', worker_keys .. worker_id, 'circuits', circuits_text(circuits))
redis.call('HDEL', worker_keys .. worker_id, unpack(cleared))
commit()
return {'OK'}
