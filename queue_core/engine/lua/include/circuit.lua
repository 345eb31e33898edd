-- circuit: no new work for a worker that fails at most of what it does, and three trials later on
-- A worker's field `circuit` is absent while it is closed, `open <until>` while it gets nothing, and `trial <good>` while
-- its next results decide. Its outcomes are counted in six steps of the window. A failure that is not to be retried is
-- the task's fault and no outcome; running into the deadline is the worker's.
--
-- @prefix worker    hash
-- @prefix outcomes  hash
-- @prefix held      set
-- @arg   circuit_failures   int  at least so many, and more than half, open it
-- @arg   circuit_window_ms  int
-- @arg   circuit_open_ms    int
-- @arg   circuit_trials     int
-- @use   tally, wake
local CIRCUIT_STEPS = 6
local good_by, bad_by, opened = {}, {}, {}

local function count_good(worker, amount)
  good_by[worker] = (good_by[worker] or 0) + amount
end

local function count_bad(worker)
  bad_by[worker] = (bad_by[worker] or 0) + 1
end

local function read_circuit(text)
  local kind, amount = string.match(text or '', '^(%a+) (%d+)$')
  return kind, tonumber(amount)
end

local function open_circuit(worker)
  opened[worker] = string.format('open %.0f', now + circuit_open_ms)
  redis.call('HSET', worker_keys .. worker, 'circuit', opened[worker])
  redis.call('DEL', outcomes_keys .. worker)
  tally('circuits_opened')
end

-- The worker's waiting poll hears of it: there may be room for another trial, or for all it wants.
local function judge_trial(worker, good, bad)
  if bad > 0 then return open_circuit(worker) end
  if good < circuit_trials then
    redis.call('HSET', worker_keys .. worker, 'circuit', 'trial ' .. good)
  else
    redis.call('HDEL', worker_keys .. worker, 'circuit')
  end
  stopped_workers[worker] = true
end

local function sum_outcomes(worker)
  local sums, fields = {good = 0, bad = 0}, redis.call('HGETALL', outcomes_keys .. worker)
  for i = 1, #fields, 2 do
    local kind, since = string.match(fields[i], '^(%a+):(%d+)$')
    if tonumber(since) > now - circuit_window_ms then sums[kind] = sums[kind] + fields[i + 1] end
  end
  return sums.good, sums.bad
end

local function count_outcomes(worker, good, bad)
  local width = math.ceil(circuit_window_ms / CIRCUIT_STEPS)
  local since = string.format('%.0f', math.floor(now / width) * width)
  if good > 0 then redis.call('HINCRBY', outcomes_keys .. worker, 'good:' .. since, good) end
  if bad > 0 then redis.call('HINCRBY', outcomes_keys .. worker, 'bad:' .. since, bad) end
  redis.call('PEXPIRE', outcomes_keys .. worker, circuit_window_ms * 2)
end

local function judge_circuit(worker, good, bad)
  local known = redis.call('HMGET', worker_keys .. worker, 'state', 'circuit')
  if not known[1] or known[1] == 'dead' then return end
  local kind, amount = read_circuit(known[2])
  if kind == 'trial' then return judge_trial(worker, amount + good, bad) end
  if kind == 'open' then return end
  count_outcomes(worker, good, bad)
  if bad == 0 then return end
  good, bad = sum_outcomes(worker)
  if bad >= circuit_failures and bad > good then open_circuit(worker) end
end

local function judge_circuits()
  for worker, good in pairs(good_by) do
    judge_circuit(worker, good, bad_by[worker] or 0)
    bad_by[worker] = nil
  end
  for worker, bad in pairs(bad_by) do judge_circuit(worker, 0, bad) end
  good_by, bad_by = {}, {}
end

-- How many tasks the worker may be given, and when to ask again; what it still holds counts as trials.
local function circuit_allowance(worker, text)
  local kind, amount = read_circuit(text)
  if not kind then return math.huge end
  if kind == 'open' and amount > now then return 0, amount end
  if kind == 'open' then
    amount = 0
    redis.call('HSET', worker_keys .. worker, 'circuit', 'trial 0')
  end
  return math.max(0, circuit_trials - amount - redis.call('SCARD', held_keys .. worker))
end
