-- ended_counts: the counts of ended tasks, and the latest state of each task in the outbox after an entry
-- Returns for each of these tasks its type and state if it has ended, else an empty text. Reads at most about
-- MAX_EVENTS events; the last value of the reply is 1 if these were all.
--
-- @flags no-writes
-- @key   ended   hash
-- @key   outbox  stream
-- @arg   after   text  the last entry that history has
-- @reply OK
-- @use   load_task, ended_type, task_counts
local MAX_EVENTS, READ_COUNT = 20000, 100
local last_records, event_count, from = {}, 0, '(' .. after

local function collect(fields)
  for i = 1, #fields, 2 do
    local task_id = fields[i]
    if task_id ~= 'now_ms' and task_id ~= 'epoch' and not string.find(task_id, ':body', 1, true) then
      last_records[task_id], event_count = fields[i + 1], event_count + 1
    end
  end
end

repeat
  local entries = redis.call('XRANGE', outbox_key, from, '+', 'COUNT', READ_COUNT)
  for _, entry in ipairs(entries) do collect(entry[2]) end
  if #entries > 0 then from = '(' .. entries[#entries][1] end
  local is_end = #entries < READ_COUNT
until is_end or event_count > MAX_EVENTS

local rows = {}
for task_id, packed in pairs(last_records) do
  local task = read_record(packed)
  local is_counted = ENDED[task.state] and task.reason ~= 'purged'
  rows[#rows + 1] = task_id
  rows[#rows + 1] = is_counted and ended_type(task) .. ' ' .. task.state or ''
end
return {'OK', now, redis.call('HGETALL', ended_key), rows, event_count > MAX_EVENTS and 0 or 1}
