-- described: one worker as people see it
-- `since_ms` is when its status changed last; releases before `word` neither read nor write it.
--
-- @prefix worker  hash
-- @prefix held    set
-- @arg   most_tasks  int  of what it holds, this many ids at most
-- @use   status, circuits
local function described(id, state, word, deadline)
  local known = redis.call('HMGET', worker_keys .. id, 'd', 'registered_ms', 'since_ms', 'died_ms', 'recovery', 'health',
    'load', 'probe_failures', 'circuits')
  local due = deadline or string.match(known[5] or '', '^%d+') or ''
  local tasks = most_tasks > 0 and redis.call('SRANDMEMBER', held_keys .. id, most_tasks) or {}
  return {id, status_of(state, word), state, word or 'active', known[1] or '', known[2] or '', known[3] or '', due,
    known[4] or '', known[6] or '', known[7] or '', known[8] or 0, redis.call('SCARD', held_keys .. id), tasks,
    circuits_text(read_circuits(known[9]))}
end
