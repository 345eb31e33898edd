-- sweep: assigned | executing -> queued | dead_letter, for all tasks that are due
-- Also removes what only time makes stale: old dead letters, old event counts, full rate buckets, ended pauses. Puts
-- back set-aside tasks that can be read by now.
--
-- @flags allow-oom
-- @key   queue         zset
-- @key   workers       zset
-- @key   dead          zset
-- @key   recent        hash
-- @key   controls      hash
-- @key   buckets       hash
-- @key   dead_workers  zset
-- @key   expiring      zset
-- @key   unreadable    zset
-- @key   definitions   hash
-- @key   outbox        stream
-- @prefix worker  hash
-- @prefix attempt_notes   hash
-- @prefix idempotency  string
-- @arg   limit               int
-- @arg   dead_letter_ttl_ms  int
-- @reply OK
-- @use   recover, place_live, commit
local MAX_BATCHES, MAX_FORGOTTEN, MAX_BUCKETS = 32, 500, 200
local KEPT_COUNTS_MS, KEPT_DEAD_WORKERS_MS, KEPT_EVENTS = 3900000, 3600000, 10000

local function drop_old_event_counts()
  for _, field in ipairs(redis.call('HKEYS', recent_key)) do
    local began_at = tonumber(string.match(field, '%d+$') or nil) or now
    if began_at < now - KEPT_COUNTS_MS then redis.call('HDEL', recent_key, field) end
  end
end

local function end_pauses()
  local rules = controls()
  for field, rule in pairs(rules) do
    local resume_at = string.match(field, '^pause:') and tonumber(string.match(rule, '^%d+'))
    if resume_at and resume_at <= now then
      redis.call('HDEL', controls_key, field)
      announce_change()
    end
  end
end

-- A full bucket equals a missing one. Clients are many, so a random sample is checked.
local function drop_full_buckets()
  local found, full = redis.call('HRANDFIELD', buckets_key, MAX_BUCKETS, 'WITHVALUES') or {}, {}
  for i = 1, #found, 2 do
    if (tonumber(found[i + 1]) or 0) <= now then full[#full + 1] = found[i] end
  end
  if #full > 0 then redis.call('HDEL', buckets_key, unpack(full)) end
end

local function drop_dead_workers()
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', dead_workers_key, '-inf', now - KEPT_DEAD_WORKERS_MS)) do
    redis.call('DEL', worker_keys .. worker)
    redis.call('ZREM', dead_workers_key, worker)
  end
end

-- Deletes tasks that finished together, except those that have changed since. Finished tasks have no place in the
-- queue.
local function forget_tasks(batch)
  local ids, versions = {}, {}
  for task_id, version in string.gmatch(batch, '(%S+):(%d+)') do
    ids[#ids + 1], versions[#versions + 1] = task_id, version
  end
  fetch_tasks(ids)
  for i, task_id in ipairs(ids) do
    local task = tasks[task_id]
    if task and ENDED[task.state] and task.version == versions[i] then
      delete_task(task_id)
      redis.call('DEL', attempt_notes_keys .. task_id)
    end
  end
  return #ids
end

-- Deletes idempotency keys that were stored together, except those that stand for a later task by now.
local function forget_keys(batch)
  local count = 0
  for name in string.gmatch(batch, '~(%S+)') do
    local expires_at = string.match(redis.call('GET', idempotency_keys .. name) or '', '^%S+ %S+ (%d+)')
    if expires_at and tonumber(expires_at) <= now then redis.call('DEL', idempotency_keys .. name) end
    count = count + 1
  end
  return count
end

local function forget_expired()
  local count = 0
  for _, batch in ipairs(redis.call('ZRANGEBYSCORE', expiring_key, '-inf', now, 'LIMIT', 0, MAX_BATCHES)) do
    if count >= MAX_FORGOTTEN then break end
    count = count + forget_tasks(batch) + forget_keys(batch)
    redis.call('ZREM', expiring_key, batch)
  end
  return count
end

-- A set-aside task that is gone or has ended is dropped here; one that still cannot be read is tried again later.
local function put_back_readable()
  local ids = redis.call('ZRANGEBYSCORE', unreadable_key, '-inf', now, 'LIMIT', 0, limit)
  fetch_tasks(ids)
  for _, task_id in ipairs(ids) do
    local task = load_whole(task_id)
    local is_live = task and LIVE[task.state] and redis.call('HGET', definitions_key, task_id)
    if is_live then place_live(task_id, task, 0) end
    if is_live or not task or ENDED[task.state] then
      redis.call('ZREM', unreadable_key, task_id)
    else
      redis.call('ZADD', unreadable_key, now + RETRY_READ_MS, task_id)
    end
  end
end

-- Without history only live readers need events, and only the latest ones.
local function trim_unread_outbox()
  if unrecorded_ttl_ms > 0 then redis.call('XTRIM', outbox_key, 'MAXLEN', '~', KEPT_EVENTS) end
end

local moved, dead_count = recover(limit)
local tidied = dead_count + forget_expired()
put_back_readable()
trim_unread_outbox()
if moved == 0 then
  redis.call('ZREMRANGEBYSCORE', dead_key, '-inf', now - dead_letter_ttl_ms)
  drop_old_event_counts()
  drop_full_buckets()
  if controls().any then end_pauses() end
  drop_dead_workers()
end
commit()
local due = redis.call('ZCOUNT', expiring_key, '-inf', now) + redis.call('ZCOUNT', queue_key, '(0', now)
  + redis.call('ZCOUNT', workers_key, '-inf', now)
return {'OK', moved, due, tidied}
