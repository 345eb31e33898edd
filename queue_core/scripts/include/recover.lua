-- recover: puts back due tasks and those that dead workers held
-- Claims and the sweeper both do this, a bounded number at a time, so that recovery never waits for either. The
-- jitter's seed is an argument: math.random repeats itself in every run.
--
-- @key   workers       zset
-- @key   dead_workers  zset
-- @prefix worker  hash
-- @arg   seed            int
-- @arg   max_deliveries  int
-- @arg   max_losses      int
-- @use   load_task, unreadable_tasks, spend_retry, worker_tasks, limits, circuit_breaker, commit
local TIMEOUT_ERROR = '{"message":"the execution deadline passed","code":"TIMEOUT","retriable":true}'
local LOST_ERROR = '{"message":"the worker stopped sending heartbeats","code":"WORKER_LOST","retriable":true}'
local STAGGER_MS, STAGGER_WITHIN_MS = 100, 10000
math.randomseed(seed)

local function lapse(task_id, task)
  unhold(task_id, task)
  refund(task.lane)
  count_event('assignment_timeouts')
  task.deliveries, task.attempt = task.deliveries + 1, task.attempt - 1
  if task.deliveries < max_deliveries then return put_back(task_id, task, 'assignment_lapsed') end
  make_dead_letter(task_id, task, 'never_started')
end

local function time_out(task_id, task)
  unhold(task_id, task)
  request_stop(task_id, task)
  count_event('execution_timeouts')
  count_outcome(task.worker, task.lane, 'bad', 1)
  spend_retry(task_id, task, 'TIMEOUT', 'timed_out', math.random() * 2 - 1, TIMEOUT_ERROR)
end

local function lose(task_id, task, visible_at)
  count_event('worker_losses')
  task.losses = task.losses + 1
  note_error(task_id, task, LOST_ERROR)
  if task.losses < max_losses then return put_back_later(task_id, task, visible_at, 'worker_lost', LOST_ERROR) end
  make_dead_letter(task_id, task, 'poison', LOST_ERROR)
end

local function recover_due(limit)
  local due = redis.call('ZRANGEBYSCORE', queue_key, '(0', now, 'LIMIT', 0, limit)
  fetch_tasks(due)
  for _, task_id in ipairs(due) do
    local task = load_whole(task_id)
    local state = task and task.state
    if state == 'queued' then
      place_ready(task_id, task)
    elseif state == 'assigned' then
      lapse(task_id, task)
    elseif state == 'executing' then
      time_out(task_id, task)
    else
      drop_or_set_aside(task_id, task)
    end
  end
  return #due
end

local function mark_worker_dead(worker)
  redis.call('HSET', worker_keys .. worker, 'state', 'dead', 'died_ms', now)
  redis.call('ZREM', workers_key, worker)
  redis.call('ZADD', dead_workers_key, now, worker)
  count_event('workers_lost')
end

-- How far the recovery of a silent worker has come: when it began, and how many tasks it moved. It is stored with the
-- deadline the worker missed, so that a worker that came back and fell silent again starts anew.
local function recovery_of(worker, missed)
  local text = redis.call('HGET', worker_keys .. worker, 'recovery') or ''
  local deadline, began_at, moved = string.match(text, '^(%d+) (%d+) (%d+)$')
  if deadline ~= missed then return now, 0 end
  return tonumber(began_at), tonumber(moved)
end

-- Tasks that a dead worker executed come back staggered, so that a crash is not a stampede. An id that is no longer the
-- worker's, or of a finished task, is only removed. A worker that held more than one script may move stays in `workers`
-- until its last task is recovered.
local function recover_worker(worker, missed, limit)
  local began_at, moved = recovery_of(worker, missed)
  local left = redis.call('SCARD', worker_tasks_keys .. worker)
  local spacing = math.min(STAGGER_MS, math.floor(STAGGER_WITHIN_MS / math.max(moved + left, 1)))
  local ids = left > 0 and redis.call('SPOP', worker_tasks_keys .. worker, limit) or {}
  fetch_tasks(ids)
  for _, task_id in ipairs(ids) do
    local task = load_whole(task_id)
    moved = moved + 1
    if not task or task == UNREADABLE then
      drop_or_set_aside(task_id, task)
    elseif task.worker == worker and task.state == 'assigned' then
      lapse(task_id, task)
    elseif task.worker == worker and task.state == 'executing' then
      lose(task_id, task, math.max(now, began_at + moved * spacing))
    end
  end
  local progress = string.format('%s %.0f %d', missed, began_at, moved)
  redis.call('HSET', worker_keys .. worker, 'recovery', progress)
  if #ids == left then mark_worker_dead(worker) end
  return #ids, #ids == left and 1 or 0
end

-- Due tasks leave their workers before silent workers are recovered, so no task is recovered twice. Returns how many
-- tasks moved, and how many workers were declared dead.
local function recover(limit)
  local moved = recover_due(limit)
  update_circuits()
  flush()
  local silent = redis.call('ZRANGEBYSCORE', workers_key, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 1)
  if not silent[1] then return moved, 0 end
  local lost, dead_count = recover_worker(silent[1], string.format('%.0f', silent[2]), limit)
  flush()
  return moved + lost, dead_count
end
