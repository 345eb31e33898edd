-- wake: gathers what waiting polls wake for; commit() publishes it at once
-- Ready tasks are published by lane and number. A due instant is published only if it comes before the next scan that
-- every process makes each second. A freed slot or a changed rule makes every process scan. Nothing is published while
-- no poll waits, as when every worker is busy: a message costs each process 50 µs, and the store 25. A claim that finds
-- nothing requests wake-ups, and a process with waiting polls repeats that every second.
--
-- @key   meta          hash
-- @arg   wake_channel  text
local SOON_MS, WAITED_MS = 1500, 3000
local ready_by_lane, next_due, woken_workers, should_scan = {}, nil, {}, false

local function announce_ready(lane, amount)
  ready_by_lane[lane] = (ready_by_lane[lane] or 0) + amount
end

local function announce_taken(lane)
  if ready_by_lane[lane] then ready_by_lane[lane] = ready_by_lane[lane] - 1 end
end

local function announce_due(at)
  if at - now < SOON_MS and (not next_due or at < next_due) then next_due = at end
end

local function announce_change()
  should_scan = true
end

local function request_wakes()
  redis.call('HSET', meta_key, 'waited_ms', now + WAITED_MS)
end

local function publish_wakes()
  if now > (tonumber(meta[6]) or 0) then return end
  local parts = {}
  for lane, count in pairs(ready_by_lane) do
    if count > 0 then parts[#parts + 1] = lane .. ':' .. count end
  end
  for worker in pairs(woken_workers) do parts[#parts + 1] = 'worker:' .. worker end
  if next_due then parts[#parts + 1] = 'due:' .. math.max(next_due - now, 0) end
  if should_scan then parts[#parts + 1] = 'look:1' end
  if #parts > 0 then
    redis.call('PUBLISH', wake_channel, (meta[4] or '0') .. ' ' .. table.concat(parts, ' '))
    ready_by_lane, next_due, woken_workers, should_scan = {}, nil, {}, false
  end
end
