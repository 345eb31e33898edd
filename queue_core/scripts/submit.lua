-- submit: new task -> queued
-- All rows or none. A row whose idempotency key or id already has a task is answered with that task and costs nothing.
-- Everything that can refuse comes first: conflicts, ranks, memory, outbox, depth, rate and lanes.
--
-- Tasks of one batch are mostly alike. Shared values are sent once, as a kind, and the record and the score of those
-- that are ready at once and have no key are made once a kind: 8 instead of 20 µs a task. Such tasks are not in the
-- reply: they are new, and rank as their kind does at this instant. For the same reason a key that stands for a whole
-- batch is its last row's, and the ids of the others follow from that row's id. History gets the batch in one outbox
-- entry, so it has either all of the batch or nothing.
--
-- @key   counts   hash
-- @key   usage    hash
-- @key   outbox   stream
-- @key   records  hash
-- @prefix idempotency  string
-- @arg   client_id           text
-- @arg   is_listed           int     whether this client is exempt from the depth limits
-- @arg   include_position      int
-- @arg   most_new            text    for one of several partitions: how many new tasks the queue takes, empty for any number
-- @arg   is_counted          int     whether the depth of all partitions is near a limit
-- @arg   not_after           text    empty, or the instant from which other batches may have the keys it reserved
-- @arg   has_own_ids         int     whether any id was chosen by the client, and so may exist already
-- @arg   is_one              int     whether the last row's key stands for all rows
-- @arg   kinds               text    a line each: signature priority urgency offset_ms max_retries timeout_ms backoff
-- @arg   soft_depth          int
-- @arg   high_only_depth     int
-- @arg   max_depth           int
-- @arg   max_outbox_entries  int
-- @row   task_id
-- @row   about       its kind's number; for other than plain tasks followed by the schedule (empty for now,
--                    +milliseconds for a delay, else an instant) and the idempotency (empty, or name and fingerprint)
-- @row   definition
-- @reply OK UNREADABLE_KIND IDEMPOTENCY_CONFLICT RANK_OUT_OF_RANGE QUEUE_FULL OUTBOX_FULL STORE_FULL TOO_MANY_NEW TOO_LATE
-- @use   lane_for, move, place, position, commit, pending_keys, store_key, client_rate
local RETRY_AFTER_MS = 5000
local kinds_by_number, existing, planned_keys, planned_ids = {}, {}, {}, {}
local new_count, least_urgent, kind_count = 0, 0, 0
local pending_key = nil

local KIND = '^(%S+) (%S+) (%d+) (%-?%d+) (%d+) (%d+) ?(%S*)$'
for line in string.gmatch(kinds .. '\n', '([^\n]*)\n') do
  local signature, priority, urgency, offset_ms, max_retries, timeout_ms, backoff = string.match(line, KIND)
  if not signature then return {'UNREADABLE_KIND', line} end
  kind_count = kind_count + 1
  kinds_by_number[tostring(kind_count)] = {
    signature = signature, priority = priority, urgency = tonumber(urgency),
    offset_ms = tonumber(offset_ms), max_retries = max_retries, timeout_ms = timeout_ms, backoff = backoff,
  }
end

-- The kind, the schedule and the idempotency of a row.
local function parse_about(about)
  local kind = kinds_by_number[about]
  if kind then return kind, '', '' end
  local number, schedule, idempotency = string.match(about, '^(%d+) (%S*) (.*)$')
  return kinds_by_number[number], schedule, idempotency
end

local function eligible_at(schedule)
  if schedule == '' then return now end
  local delay = string.match(schedule, '^%+(.*)')
  return delay and now + delay or math.max(tonumber(schedule), now)
end

local function id_exists(task_id)
  if has_own_ids == 0 then return false end
  local exists = planned_ids[task_id] or redis.call('HEXISTS', records_key, task_id) == 1
  planned_ids[task_id] = true
  return exists
end

-- The task that a row's key or id has already, or that an earlier row makes; and whether the row differs from it.
local function existing_task(task_id, idempotency)
  if idempotency ~= '' then
    local name, fingerprint = string.match(idempotency, '^(%S+) (%S+)$')
    local kept = planned_keys[name] or redis.call('GET', idempotency_keys .. name)
    local key = kept and read_key(kept)
    if key and key.task_id ~= task_id and key.is_pending then
      pending_key = pending_refusal(name, key)
      return nil, false
    end
    if key and not key.is_pending then return key.task_id, key.fingerprint ~= fingerprint end
    planned_keys[name] = task_id .. ' ' .. fingerprint .. ' ' .. string.format('%.0f', now + idempotency_ttl_ms)
  end
  return id_exists(task_id) and task_id or nil, false
end

local batch_existing, batch_differs
if is_one == 1 then
  local task_id, about = row(row_count)
  local _, _, idempotency = parse_about(about)
  batch_existing, batch_differs = existing_task(task_id, idempotency)
end

for i = 1, row_count do
  local task_id, about = row(i)
  local kind, schedule, idempotency = parse_about(about)
  local existing_id, differs = batch_existing, batch_differs
  if is_one == 0 then existing_id, differs = existing_task(task_id, idempotency) end
  if differs then return {'IDEMPOTENCY_CONFLICT', existing_id} end
  if pending_key then return pending_key end
  existing[i] = existing_id
  if not existing_id then
    new_count = new_count + 1
    if schedule ~= '' or not kind.is_checked then
      local rank = eligible_at(schedule) + kind.offset_ms
      if not is_rank(rank) then return {'RANK_OUT_OF_RANGE', task_id, string.format('%.0f', rank)} end
      kind.is_checked, least_urgent = true, math.max(least_urgent, kind.urgency)
      find_lane(kind.signature)
    end
  end
end

local function store_refusal()
  if meta[5] == '1' then return {'STORE_FULL', RETRY_AFTER_MS} end
  local backlog = redis.call('XLEN', outbox_key)
  if backlog >= max_outbox_entries then return {'OUTBOX_FULL', backlog, max_outbox_entries, RETRY_AFTER_MS} end
end

local function depth_refusal()
  if is_listed == 1 then return nil end
  local depth = tonumber(redis.call('HGET', counts_key, 'queued') or nil) or 0
  local function over(stage, limit, spared_urgency)
    return depth + new_count > limit and least_urgent > spared_urgency
      and {'QUEUE_FULL', stage, depth, limit, RETRY_AFTER_MS}
  end
  return over('max', max_depth, -1) or over('high_only', high_only_depth, 0) or over('soft', soft_depth, 1) or nil
end

if new_count > 0 then
  if not_after ~= '' and now > tonumber(not_after) then return {'TOO_LATE'} end
  if most_new ~= '' and new_count > tonumber(most_new) then return {'TOO_MANY_NEW', new_count, least_urgent} end
  local refused = store_refusal() or depth_refusal() or rate_refusal(new_count) or plan_lanes()
  if refused then return refused end
end

-- From here on everything is accepted. The reason `submitted` is stored as an empty text: every waiting task has it.
open_lanes()
if new_count > 0 then spend_submissions(new_count) end

local function new_task(kind, eligible_ms, idempotency)
  return {
    state = '', version = '0', lane = lane_of[kind.signature], visible_ms = '',
    age_bucket = kind.priority .. ':' .. math.floor(eligible_ms / 60000),
    timeout_ms = kind.timeout_ms, attempt = '0', lease = '', worker = '', reason = '', assigned_ms = '',
    started_ms = '', ended_ms = '', last_result = '', rank = eligible_ms + kind.offset_ms, max_retries = kind.max_retries,
    retries = '0', losses = '0', deliveries = '0', created_ms = now_text,
    eligible_ms = eligible_ms > now and eligible_ms or '', queued_ms = '', backoff = kind.backoff,
    idempotency = idempotency,
  }
end

-- Ready at once and without a key: the first of its kind moves like any other, the rest reuse its record and score.
local function submit_plain(task_id, kind)
  if not kind.model then
    kind.model = new_task(kind, now, '')
    kind.packed = move(task_id, kind.model, 'queued', '', '')
    kind.score_text = place_ready(task_id, kind.model)
    kind.repeats, kind.first_id, kind.is_ascending = 0, task_id, true
  else
    store_record(task_id, kind.packed)
    append_event(task_id, kind.packed)
    place(task_id, kind.score_text)
    kind.repeats, kind.is_ascending = kind.repeats + 1, kind.is_ascending and kind.last_id < task_id
  end
  kind.last_id = task_id
end

local function submit_special(task_id, kind, schedule, idempotency)
  local eligible_ms, name = eligible_at(schedule), string.match(idempotency, '^%S*')
  local task = new_task(kind, eligible_ms, idempotency)
  local visible_text = eligible_ms > now and string.format('%.0f', eligible_ms) or ''
  if visible_text == '' then place_ready(task_id, task) else place_hidden(task_id, eligible_ms, visible_text) end
  move(task_id, task, 'queued', '', visible_text)
  if name ~= '' then store_key(name, planned_keys[name]) end
end

local answered = {}
for i = 1, row_count do
  local task_id, about, definition = row(i)
  local plain_kind = kinds_by_number[about]
  if existing[i] then
    answered[#answered + 1] = i
  elseif plain_kind then
    store_definition(task_id, definition)
    submit_plain(task_id, plain_kind)
  else
    store_definition(task_id, definition)
    submit_special(task_id, parse_about(about))
    answered[#answered + 1] = i
  end
end
for _, kind in pairs(kinds_by_number) do
  if kind.model then count_repeats(kind.model, kind.repeats) end
end
if new_count > 0 then
  flush_keys()
  commit()
end
local counted = is_counted == 1 and redis.call('HINCRBY', usage_key, 'taken:#queued', new_count) or ''

-- Looks up the positions of the first and the last task of a kind. If exactly the others lie between them, theirs
-- follow; if not, tasks of the same instant lie between, and each task is looked up.
local function first_position(kind)
  local lane = lane_of[kind.signature]
  local first = lane_position(kind.first_id, lane)
  if kind.repeats == 0 then return first end
  return kind.is_ascending and lane_position(kind.last_id, lane) - first == kind.repeats and first
end

-- An existing task is answered by its id alone, a new one also by its rank, when it becomes visible, and its position.
local function answer(i)
  local task_id, about = row(i)
  if existing[i] then return i .. '|' .. existing[i] end
  local kind, schedule = parse_about(about)
  local eligible_ms = eligible_at(schedule)
  local rank, is_hidden = eligible_ms + kind.offset_ms, eligible_ms > now
  local place = include_position == 1 and not is_hidden and lane_position(task_id, lane_of[kind.signature]) or ''
  return i .. '|' .. task_id .. '|' .. rank .. '|' .. (is_hidden and eligible_ms or '') .. '|' .. place
end

local replies = {'OK', now, bucket(), counted}
for number, kind in pairs(kinds_by_number) do
  if include_position == 1 and kind.model then
    local first = first_position(kind)
    if first then
      replies[#replies + 1] = '*' .. number .. '|' .. first
    else
      for i = 1, row_count do
        local _, about = row(i)
        if about == number and not existing[i] then answered[#answered + 1] = i end
      end
    end
  end
end
for _, i in ipairs(answered) do replies[#replies + 1] = answer(i) end
return replies
