-- worker_tasks: gathers which worker holds which task; flush_holds() writes it at once
-- A stop names the lease, so that a worker that claimed the same task again does not abandon the new attempt.
--
-- @prefix worker_tasks   set
-- @prefix cancellations  zset
-- @use   wake
local taken_by, dropped_by, stops_for = {}, {}, {}

local function append_for(by_worker, worker, item)
  local list = by_worker[worker]
  if not list then
    list = {}
    by_worker[worker] = list
  end
  list[#list + 1] = item
end

local function hold(task_id, task)
  append_for(taken_by, task.worker, task_id)
end

local function unhold(task_id, task)
  append_for(dropped_by, task.worker, task_id)
end

local function request_stop(task_id, task)
  append_for(stops_for, task.worker, now)
  append_for(stops_for, task.worker, task_id .. ' ' .. task.lease)
  woken_workers[task.worker] = true
end

local function flush_holds()
  for worker, ids in pairs(dropped_by) do redis.call('SREM', worker_tasks_keys .. worker, unpack(ids)) end
  for worker, ids in pairs(taken_by) do redis.call('SADD', worker_tasks_keys .. worker, unpack(ids)) end
  for worker, entries in pairs(stops_for) do
    redis.call('ZADD', cancellations_keys .. worker, unpack(entries))
    redis.call('PEXPIRE', cancellations_keys .. worker, 600000)
  end
  taken_by, dropped_by, stops_for = {}, {}, {}
end
