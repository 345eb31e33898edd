-- keep: gather what is to be kept of tasks; flush_kept() writes it at once
-- All tasks share three hashes: records, definitions and results. The price of a script is the price of its calls, and
-- so a batch costs as many as one task. A finished task stays until its time is over, which begins when history has
-- acknowledged it, or at once where there is none; batches that finished together are forgotten together.
--
-- @key   records      hash
-- @key   definitions  hash
-- @key   results      hash
-- @key   expiring     zset
-- @arg   unrecorded_ttl_ms   int  zero where history keeps what finished
-- @arg   dead_letter_ttl_ms  int
local kept_records, kept_definitions, kept_results, gone_ids = {}, {}, {}, {}
local expiring = {}

local function keep(list, task_id, text)
  local count = #list
  list[count + 1] = task_id
  list[count + 2] = text
end

local function keep_record(task_id, packed)
  keep(kept_records, task_id, packed)
end

local function keep_definition(task_id, definition)
  keep(kept_definitions, task_id, definition)
end

local function keep_result(task_id, result)
  keep(kept_results, task_id, result)
end

local function keep_nothing(task_id)
  gone_ids[#gone_ids + 1] = task_id
end

-- Forget the task after this time, if it is still what it is in this version.
local function forget_after(ttl_ms, task_id, version)
  local batch = expiring[ttl_ms] or {}
  batch[#batch + 1] = task_id .. ':' .. version
  expiring[ttl_ms] = batch
end

local function forget_unrecorded(task_id, task)
  if unrecorded_ttl_ms > 0 then
    forget_after(task.state == 'dead_letter' and dead_letter_ttl_ms or unrecorded_ttl_ms, task_id, task.version)
  end
end

local function flush_kept()
  if #kept_records > 0 then redis.call('HSET', records_key, unpack(kept_records)) end
  if #kept_definitions > 0 then redis.call('HSET', definitions_key, unpack(kept_definitions)) end
  if #kept_results > 0 then redis.call('HSET', results_key, unpack(kept_results)) end
  if #gone_ids > 0 then
    redis.call('HDEL', records_key, unpack(gone_ids))
    redis.call('HDEL', definitions_key, unpack(gone_ids))
    redis.call('HDEL', results_key, unpack(gone_ids))
  end
  for ttl_ms, batch in pairs(expiring) do
    redis.call('ZADD', expiring_key, now + ttl_ms, table.concat(batch, ' '))
  end
  kept_records, kept_definitions, kept_results, gone_ids, expiring = {}, {}, {}, {}, {}
end
