-- sweep: assigned | executing -> queued | dead_letter, for all that fell due
-- Also tidies what only time makes stale: old dead letters, old tallies, pauses that have ended.
--
-- @flags allow-oom
-- @key   queue         zset
-- @key   workers       zset
-- @key   dead          zset
-- @key   recent        hash
-- @key   controls      hash
-- @key   dead_workers  zset
-- @prefix worker  hash
-- @arg   limit               int
-- @arg   dead_letter_ttl_ms  int
-- @reply OK
-- @use   recover, commit
local KEPT_TALLIES_MS, KEPT_DEAD_WORKERS_MS = 3900000, 3600000

local function drop_old_tallies()
  for _, field in ipairs(redis.call('HKEYS', recent_key)) do
    if tonumber(string.match(field, '%d+$')) < now - KEPT_TALLIES_MS then redis.call('HDEL', recent_key, field) end
  end
end

local function end_pauses()
  local rules = controls()
  for field, rule in pairs(rules) do
    local resume_at = string.match(field, '^pause:') and tonumber(string.match(rule, '^%d+'))
    if resume_at and resume_at <= now then
      redis.call('HDEL', controls_key, field)
      tell_to_look()
    end
  end
end

local function forget_dead_workers()
  for _, worker in ipairs(redis.call('ZRANGEBYSCORE', dead_workers_key, '-inf', now - KEPT_DEAD_WORKERS_MS)) do
    redis.call('DEL', worker_keys .. worker)
    redis.call('ZREM', dead_workers_key, worker)
  end
end

local moved = recover(limit)
if moved == 0 then
  redis.call('ZREMRANGEBYSCORE', dead_key, '-inf', now - dead_letter_ttl_ms)
  drop_old_tallies()
  if controls().any then end_pauses() end
  forget_dead_workers()
end
commit()
local due = redis.call('ZCOUNT', queue_key, '(0', now) + redis.call('ZCOUNT', workers_key, '-inf', now)
return {'OK', moved, due}
