-- ended: what is counted as ended, and what the outbox tells beyond an entry, in one look
-- Of each task the outbox tells of, the last word: its type and state if it has ended, else nothing. No more events are
-- read than one script should read; whether these were all is told.
--
-- @flags no-writes
-- @key   ended   hash
-- @key   outbox  stream
-- @arg   after   text  the entry that history had last
-- @reply OK
-- @use   load_task, ended_type, count
local MAX_EVENTS, READ_COUNT = 20000, 100
local last_words, event_count, from = {}, 0, '(' .. after

local function note(fields)
  for i = 1, #fields, 2 do
    local task_id = fields[i]
    if task_id ~= 'now_ms' and task_id ~= 'epoch' and not string.find(task_id, ':body', 1, true) then
      last_words[task_id], event_count = fields[i + 1], event_count + 1
    end
  end
end

repeat
  local entries = redis.call('XRANGE', outbox_key, from, '+', 'COUNT', READ_COUNT)
  for _, entry in ipairs(entries) do note(entry[2]) end
  if #entries > 0 then from = '(' .. entries[#entries][1] end
  local is_end = #entries < READ_COUNT
until is_end or event_count > MAX_EVENTS

local told = {}
for task_id, packed in pairs(last_words) do
  local task = read_record(packed)
  local is_counted = ENDED[task.state] and task.reason ~= 'purged'
  told[#told + 1] = task_id
  told[#told + 1] = is_counted and ended_type(task) .. ' ' .. task.state or ''
end
return {'OK', now, redis.call('HGETALL', ended_key), told, event_count > MAX_EVENTS and 0 or 1}
