-- record_buffer: gathers records, definitions and results to write or delete; flush_records() does it at once
-- All tasks share three hashes. The cost of a script is the number of its store calls, so a batch costs as much as one
-- task. A finished task stays until its time is over. The time begins when history has acknowledged the task, or at
-- once without history. Batches that finished together are deleted together.
--
-- @key   records      hash
-- @key   definitions  hash
-- @key   results      hash
-- @key   expiring     zset
-- @arg   unrecorded_ttl_ms   int  zero where history keeps what finished
-- @arg   dead_letter_ttl_ms  int
local new_records, new_definitions, new_results, deleted_ids = {}, {}, {}, {}
local expiring = {}

local function append(list, task_id, text)
  local count = #list
  list[count + 1] = task_id
  list[count + 2] = text
end

local function store_record(task_id, packed)
  append(new_records, task_id, packed)
end

local function store_definition(task_id, definition)
  append(new_definitions, task_id, definition)
end

local function store_result(task_id, result)
  append(new_results, task_id, result)
end

local function delete_task(task_id)
  deleted_ids[#deleted_ids + 1] = task_id
end

-- Deletes the task after this time, if its version is still this one.
local function expire_after(ttl_ms, task_id, version)
  local batch = expiring[ttl_ms] or {}
  batch[#batch + 1] = task_id .. ':' .. version
  expiring[ttl_ms] = batch
end

local function expire_without_history(task_id, task)
  if unrecorded_ttl_ms > 0 then
    expire_after(task.state == 'dead_letter' and dead_letter_ttl_ms or unrecorded_ttl_ms, task_id, task.version)
  end
end

local function flush_records()
  if #new_records > 0 then redis.call('HSET', records_key, unpack(new_records)) end
  if #new_definitions > 0 then redis.call('HSET', definitions_key, unpack(new_definitions)) end
  if #new_results > 0 then redis.call('HSET', results_key, unpack(new_results)) end
  if #deleted_ids > 0 then
    redis.call('HDEL', records_key, unpack(deleted_ids))
    redis.call('HDEL', definitions_key, unpack(deleted_ids))
    redis.call('HDEL', results_key, unpack(deleted_ids))
  end
  for ttl_ms, batch in pairs(expiring) do
    redis.call('ZADD', expiring_key, now + ttl_ms, table.concat(batch, ' '))
  end
  new_records, new_definitions, new_results, deleted_ids, expiring = {}, {}, {}, {}, {}
end
