-- wake: gather what waiting pollers should hear; commit() publishes it at once
-- Ready tasks are told by lane and number. What falls due is told only when it does so before the second in which
-- every process looks for itself; all else would be noise. A freed slot or a changed rule asks everyone to look.
-- Nothing is published while nobody waits, as when every worker is busy: hearing of it costs each process 50 µs, and the
-- store 25. Whoever finds nothing to claim says so, and a process with waiting pollers repeats it every second.
--
-- @key   meta          hash
-- @arg   wake_channel  text
local SOON_MS, WAITED_MS = 1500, 3000
local ready_by_lane, next_due, stopped_workers, should_look = {}, nil, {}, false

local function tell_ready(lane, amount)
  ready_by_lane[lane] = (ready_by_lane[lane] or 0) + amount
end

local function tell_taken(lane)
  if ready_by_lane[lane] then ready_by_lane[lane] = ready_by_lane[lane] - 1 end
end

local function tell_due(at)
  if at - now < SOON_MS and (not next_due or at < next_due) then next_due = at end
end

local function tell_to_look()
  should_look = true
end

local function expect_wakes()
  redis.call('HSET', meta_key, 'waited_ms', now + WAITED_MS)
end

local function publish_wakes()
  if now > (tonumber(meta[6]) or 0) then return end
  local parts = {}
  for lane, count in pairs(ready_by_lane) do
    if count > 0 then parts[#parts + 1] = lane .. ':' .. count end
  end
  for worker in pairs(stopped_workers) do parts[#parts + 1] = 'worker:' .. worker end
  if next_due then parts[#parts + 1] = 'due:' .. math.max(next_due - now, 0) end
  if should_look then parts[#parts + 1] = 'look:1' end
  if #parts > 0 then
    redis.call('PUBLISH', wake_channel, (meta[4] or '0') .. ' ' .. table.concat(parts, ' '))
    ready_by_lane, next_due, stopped_workers, should_look = {}, nil, {}, false
  end
end
