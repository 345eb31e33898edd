-- worker_view: one worker as the API shows it
-- `since_ms` is when its status last changed; releases without the field `word` neither read nor write it.
--
-- @prefix worker  hash
-- @prefix worker_tasks    set
-- @arg   most_tasks  int  at most so many ids of the tasks it holds
-- @use   worker_status, circuit_state
local function worker_view(id, state, word, deadline)
  local fields = redis.call('HMGET', worker_keys .. id, 'd', 'registered_ms', 'since_ms', 'died_ms', 'recovery',
    'health', 'load', 'probe_failures', 'circuits')
  local due = deadline or string.match(fields[5] or '', '^%d+') or ''
  local tasks = most_tasks > 0 and redis.call('SRANDMEMBER', worker_tasks_keys .. id, most_tasks) or {}
  return {id, status_of(state, word), state, word or 'active', fields[1] or '', fields[2] or '', fields[3] or '', due,
    fields[4] or '', fields[6] or '', fields[7] or '', fields[8] or 0, redis.call('SCARD', worker_tasks_keys .. id), tasks,
    circuits_text(read_circuits(fields[9]))}
end
