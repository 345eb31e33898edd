-- claim: queued -> assigned, or -> executing
-- Takes the best ready tasks of the lanes the worker serves. Each is hidden for the assignment timeout or, where the
-- worker starts tasks at once, until the execution deadline. Also recovers due tasks. A repeated poll id returns those
-- tasks of its last answer that are still claimed by that answer.
--
-- @flags allow-oom
-- @key   queue    zset
-- @key   workers  zset
-- @key   definitions  hash
-- @prefix worker  hash
-- @prefix poll    string
-- @prefix cancellations   zset
-- @arg   worker_id             text
-- @arg   wanted                int
-- @arg   max_bytes             int   of definitions in one answer
-- @arg   assignment_ms         int
-- @arg   heartbeat_timeout_ms  int
-- @arg   poll_id               text  empty for a claim that cannot be repeated
-- @arg   starts                int   whether tasks start as they are handed out
-- @arg   lease_token           text  random, new for every call
-- @arg   capabilities          text  the worker's capabilities now; '*' for the declared ones
-- @arg   max_rank              text  empty, or the worst rank to take: beyond it another partition has better tasks
-- @arg   answer_number         text  empty, or the number of this answer, which several partitions share
-- @arg   permits_given         text  for one of several partitions: permits by limit, `scope=count scope=count`
-- @arg   not_after             text  empty, or the instant from which permits and trials may be granted to another claim
-- @reply OK UNKNOWN_WORKER
-- @use   recover, unreadable_tasks, lane_merge, worker_status, claim_allowance, still_claimed, start_attempt
-- @use   next_retry_at, commit, cancellations
local RECOVER_LIMIT, POLL_TTL_MS, FIRST_READ = 50, 600000, 16
local handed_as = starts == 1 and 'executing' or 'assigned'
local visible_at = now + assignment_ms
local visible_text = string.format('%.0f', visible_at)
local poll_key = poll_keys .. worker_id .. ':' .. poll_id

local worker = redis.call('HMGET', worker_keys .. worker_id, 'state', 'profile', 'circuits', 'word')
if not worker[1] or worker[1] == 'dead' then return {'UNKNOWN_WORKER', worker_id} end
redis.call('ZADD', workers_key, now + heartbeat_timeout_ms, worker_id)
recover(RECOVER_LIMIT)

local serves = capabilities == '*' and worker[2] or string.match(worker[2], '^[^|]*') .. '|' .. capabilities
local answer, handed, earlier_ids = 0, {}, ''

local function hand_over(task_id, packed, definition)
  local count = #handed
  handed[count + 1] = task_id
  handed[count + 2] = packed
  handed[count + 3] = definition
end

-- Returns the tasks of this poll id's last answer that are still held under the same lease. A call with the same token
-- is no repetition: the same claim takes more.
local function repeat_answer()
  local number, token, ids = string.match(redis.call('GET', poll_key) or '', '^(%d+) (%S+) (.*)$')
  answer = tonumber(number) or 0
  if token == lease_token then
    earlier_ids = ids
    return nil
  end
  for task_id in string.gmatch(ids or '', '%S+') do
    local task = load_task(task_id)
    if is_still_claimed(task, token, handed_as) then
      hand_over(task_id, pack_record(task), redis.call('HGET', definitions_key, task_id))
    end
  end
  return token
end

local function assign(task_id, task, number)
  task.attempt = successor(task.attempt)
  task.lease = task.attempt .. '-' .. lease_token .. '-' .. string.format('%d', number)
  task.worker, task.assigned_ms, task.started_ms = worker_id, now_text, ''
  hold(task_id, task)
  announce_taken(task.lane)
  if starts == 1 then return pass_through(task_id, task, 'assigned', 'claimed', visible_text) end
  place_hidden(task_id, visible_at, visible_text)
  return move(task_id, task, 'assigned', 'claimed', visible_text)
end

-- Reads until the bytes reach `max_bytes`, and at least one: a larger answer would delay other callers. The first read
-- is small and the next ones are sized by what was read so far: one read a task would double the cost of a task.
local function read_definitions(ids)
  if #ids == 1 then return redis.call('HMGET', definitions_key, ids[1]), 1 end
  local definitions, count, bytes, size = {}, 0, 0, FIRST_READ
  while count < #ids and bytes < max_bytes do
    local read = redis.call('HMGET', definitions_key, unpack(ids, count + 1, math.min(count + size, #ids)))
    for _, definition in ipairs(read) do
      if bytes >= max_bytes and count > 0 then break end
      count = count + 1
      definitions[count] = definition
      bytes = bytes + #(definition or '')
    end
    size = math.max(1, math.min(4 * size, math.floor((max_bytes - bytes) * count / math.max(bytes, 1))))
  end
  return definitions, count
end

local function leave_from(first, ids)
  for i = first, #ids do
    local task = tasks[ids[i]]
    if task and task.state == 'queued' then return_to_lane(task) else drop_or_set_aside(ids[i], task) end
  end
end

-- Returns how many were assigned. Tasks for which there is no room stay ready.
local function assign_all(ids)
  if #ids == 0 then return 0 end
  fetch_tasks(ids)
  local packed, definitions, count = {}, read_definitions(ids)
  leave_from(count + 1, ids)
  for number = 1, count do
    local task_id = ids[number]
    local task = tasks[task_id]
    if task and task.state == 'queued' and definitions[number] then
      packed[number] = assign(task_id, task, number)
    else
      drop_or_set_aside(task_id, task)
    end
  end
  if starts == 1 then flush_events() end
  for number = 1, count do
    local task_id = ids[number]
    if packed[number] then
      local last = starts == 1 and start_attempt(task_id, tasks[task_id]) or packed[number]
      hand_over(task_id, last, definitions[number])
    end
  end
  return count
end

-- How many tasks this partition ever took under each limit, for the ledger.
local function taken_counts()
  local scopes, fields = {}, {}
  for scope in pairs(permits or {}) do
    scopes[#scopes + 1], fields[#fields + 1] = scope, 'taken:' .. scope
  end
  if #fields == 0 then return {} end
  local counts = redis.call('HMGET', usage_key, unpack(fields))
  for i, scope in ipairs(scopes) do counts[i] = scope .. ' ' .. (counts[i] or 0) end
  return counts
end

local function remember_answer(token)
  if poll_id == '' then return end
  answer = answer_number ~= '' and answer_number or answer + 1
  local ids = earlier_ids ~= '' and {earlier_ids} or {}
  for i = 1, #handed, 3 do ids[#ids + 1] = handed[i] end
  redis.call('SET', poll_key, answer .. ' ' .. token .. ' ' .. table.concat(ids, ' '), 'PX', POLL_TTL_MS)
end

local retry_at = nil
local token = poll_id ~= '' and repeat_answer() or lease_token
if #handed == 0 then
  token = lease_token
  rank_limit = tonumber(max_rank) or math.huge
  local is_late = now > (tonumber(not_after) or math.huge)
  if is_late then circuit_shares = string.gsub(circuit_shares, 'share %d+', 'share 0') end
  if is_part == 1 then read_permits(is_late and '' or permits_given, 0) end
  local allowed
  allowed, retry_at = claim_allowance(worker_id, worker, wanted)
  if allowed > 0 then
    local ids, at = take_best(serves, allowed)
    retry_at = at or retry_at
    left_out_count = 0
    spend_taken(assign_all(ids))
    if left_out_count > 0 then retry_at = now end
  end
end
remember_answer(token)
if #handed == 0 then request_wakes() end
commit()
correct_heads()
local next_at = #handed == 0 and next_retry_at(retry_at) or ''
return {'OK', now, answer, next_at, status_of(worker[1], worker[4]), worker[1] == 'draining' and 1 or 0, serves,
  stops_of(worker_id), circuits_text(blocks), handed, is_part == 1 and taken_counts() or {}}
