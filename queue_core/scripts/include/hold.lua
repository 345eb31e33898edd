-- hold: gather which worker holds which task; flush_holds() writes it at once
-- A stop names the lease, so a worker that was given the same task anew does not abandon the new attempt.
--
-- @prefix held   set
-- @prefix stops  zset
-- @use   wake
local taken_by, dropped_by, stops_for = {}, {}, {}

local function gather(by_worker, worker, item)
  local list = by_worker[worker]
  if not list then
    list = {}
    by_worker[worker] = list
  end
  list[#list + 1] = item
end

local function hold(task_id, task)
  gather(taken_by, task.worker, task_id)
end

local function unhold(task_id, task)
  gather(dropped_by, task.worker, task_id)
end

local function tell_to_stop(task_id, task)
  gather(stops_for, task.worker, now)
  gather(stops_for, task.worker, task_id .. ' ' .. task.lease)
  stopped_workers[task.worker] = true
end

local function flush_holds()
  for worker, ids in pairs(dropped_by) do redis.call('SREM', held_keys .. worker, unpack(ids)) end
  for worker, ids in pairs(taken_by) do redis.call('SADD', held_keys .. worker, unpack(ids)) end
  for worker, entries in pairs(stops_for) do
    redis.call('ZADD', stops_keys .. worker, unpack(entries))
    redis.call('PEXPIRE', stops_keys .. worker, 600000)
  end
  taken_by, dropped_by, stops_for = {}, {}, {}
end
