-- emit: gather outbox events; flush_events() appends them in as few stream entries as is sensible
-- An entry holds the instant and the epoch, then for each event the record as it is now under the task's id, and
-- under `<id>:body` what came with it (a result, an error). One entry a batch instead of one a task takes 0.4 of the
-- append's time. Readers take an entry for a dictionary: it has one event of a task, and whoever has another flushes in
-- between. A submission's body is not copied: its definition never changes and stays in the store until history
-- has acknowledged every event of the task.
--
-- @key   outbox  stream
local events, event_bytes = {}, 0
local MAX_ENTRY_BYTES = 65536

local function flush_events()
  if #events > 0 then
    redis.call('XADD', outbox_key, '*', 'now_ms', now_text, 'epoch', epoch, unpack(events))
    events, event_bytes = {}, 0
  end
end

-- What else the event says that was gathered last, under `<id>:<name>`: readers that do not know the name pass it over.
local function emit_also(task_id, name, text)
  events[#events + 1] = task_id .. ':' .. name
  events[#events + 1] = text
end

local function emit(task_id, packed, body)
  local count = #events
  events[count + 1] = task_id
  events[count + 2] = packed
  if body then
    events[count + 3] = task_id .. ':body'
    events[count + 4] = body
    event_bytes = event_bytes + #body
    if event_bytes > MAX_ENTRY_BYTES then flush_events() end
  end
end
