-- peek: what a claim would take, without taking it
-- For a queue of several partitions: the caller compares heads by rank before it claims from each partition. Counts as
-- a heartbeat and recovers due tasks as a claim does, because the claim that follows may skip this partition.
--
-- @flags allow-oom
-- @key   queue    zset
-- @key   workers  zset
-- @prefix worker  hash
-- @prefix poll    string
-- @arg   worker_id             text
-- @arg   wanted                int
-- @arg   heartbeat_timeout_ms  int
-- @arg   poll_id               text  empty for a claim that cannot be repeated
-- @arg   capabilities          text  the worker's capabilities now; '*' for the declared ones
-- @arg   left                  text  what limits have left, as far as the caller has read it: `scope=count scope=count`
-- @reply OK UNKNOWN_WORKER
-- @use   recover, lane_merge, worker_status, claim_allowance, still_claimed, next_retry_at, commit, cancellations
-- @use   limit_usage, circuit_results
local RECOVER_LIMIT = 50
local worker = redis.call('HMGET', worker_keys .. worker_id, 'state', 'profile', 'circuits', 'suspect_at', 'word')
if not worker[1] or worker[1] == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
recover(RECOVER_LIMIT)

local serves = capabilities == '*' and worker[2] or string.match(worker[2], '^[^|]*') .. '|' .. capabilities

-- The number of the last answer to this poll id, and how many of its tasks are still assigned under its lease.
local function last_answer()
  if poll_id == '' then return 0, 0 end
  local kept = redis.call('GET', poll_keys .. worker_id .. ':' .. poll_id) or ''
  local number, token, ids = string.match(kept, '^(%d+) (%S+) (.*)$')
  local live = 0
  for task_id in string.gmatch(ids or '', '%S+') do
    local task = load_task(task_id)
    if is_still_claimed(task, token, 'assigned') then live = live + 1 end
  end
  return number or 0, live
end

local function heads_of(ids)
  if #ids == 0 then return {} end
  local rows, scores = {}, redis.call('ZMSCORE', queue_key, unpack(ids))
  for i, task_id in ipairs(ids) do
    rows[i] = string.format('%.0f', tonumber(scores[i]) % BAND_WIDTH) .. ' ' .. task_id
  end
  if controls().any or has_blocks then
    for i in ipairs(ids) do rows[i] = rows[i] .. ' ' .. lane_type(math.ceil(-tonumber(scores[i]) / BAND_WIDTH) - 1) end
  end
  return rows
end

local answer, live = last_answer()
local is_suspect = circuit_mode ~= 'off' and worker[4] and now - worker[4] < circuit_window_ms
read_permits(left, math.huge)
local allowed, retry_at = claim_allowance(worker_id, worker, wanted)
local ids = {}
if allowed > 0 then
  local at
  ids, at = take_best(serves, allowed)
  retry_at = at or retry_at
end
if #ids == 0 then request_wakes() end
commit()
return {'OK', now, next_retry_at(retry_at), status_of(worker[1], worker[5]), worker[1] == 'draining' and 1 or 0, serves,
  stops_of(worker_id), answer, live, heads_of(ids), usages(),
  circuit_results(worker_id, updated_circuits[worker_id] or worker[3]), is_suspect and 1 or 0}
