-- retry_delay: how long to wait before the next attempt, as in retry_policy.py; jitter lies in -1 … 1
--
-- @arg   backoff_base_ms     int
-- @arg   backoff_multiplier  number
-- @arg   backoff_cap_ms      int
-- @arg   max_execution_ms    int  no timeout is raised above it
local SLOW_DOWN = {RATE_LIMIT = true, TEMPORARY_UNAVAILABLE = true}
local MORE_TIME = {TIMEOUT = true, OUT_OF_MEMORY = true}
local MAX_RAISED_TIMEOUT_MS = 3600000

local function retry_delay(task, code, jitter)
  local base, multiplier, cap = string.match(task.backoff, '^(.*),(.*),(.*)$')
  local delay = (tonumber(base) or backoff_base_ms)
    * (tonumber(multiplier) or backoff_multiplier) ^ math.min(task.retries, 64)
  if SLOW_DOWN[code] then delay = delay * 2 end
  return math.floor(math.min(delay, tonumber(cap) or backoff_cap_ms) * (1 + 0.2 * jitter))
end

local function next_timeout(task, code)
  if not MORE_TIME[code] then return task.timeout_ms end
  local raised = math.min(math.floor(task.timeout_ms * 3 / 2), MAX_RAISED_TIMEOUT_MS, max_execution_ms)
  return math.max(task.timeout_ms, raised)
end
