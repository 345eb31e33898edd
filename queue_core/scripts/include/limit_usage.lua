-- limit_usage: how much of each limit one of several partitions has in use, as the ledger takes it
-- A line each: scope, rate and most as they were set for the whole queue ('-' for none), what is assigned or executing
-- here, and how many tasks were ever taken and refunded under the limit.
--
-- @key   lane_names  hash
-- @key   counts      hash
-- @key   usage       hash
-- @use   limits
local function limited_scopes()
  local scopes, is_listed = {}, {}
  for field in pairs(controls()) do
    local scope = string.match(field, '^rate:(.*)$') or string.match(field, '^max:(.*)$')
    if scope and not is_listed[scope] then
      scopes[#scopes + 1], is_listed[scope] = scope, true
    end
  end
  return scopes
end

local function running_by_type()
  local sums, counted = {}, {}
  local flat, names = redis.call('HGETALL', counts_key), redis.call('HGETALL', lane_names_key)
  for i = 1, #flat, 2 do counted[flat[i]] = tonumber(flat[i + 1]) end
  for i = 1, #names, 2 do
    local task_type = string.match(names[i + 1], '^[^|]*')
    local count = (counted[names[i] .. ':assigned'] or 0) + (counted[names[i] .. ':executing'] or 0)
    sums[task_type] = (sums[task_type] or 0) + count
  end
  sums['*'] = (counted.assigned or 0) + (counted.executing or 0)
  return sums
end

local function usages()
  local rules, lines, sums = controls(), {}, nil
  if not rules.any then return {} end
  for _, scope in ipairs(limited_scopes()) do
    local rate, most = rules['rate:' .. scope], rules['max:' .. scope]
    if most then sums = sums or running_by_type() end
    local used = redis.call('HMGET', usage_key, 'taken:' .. scope, 'refunded:' .. scope)
    lines[#lines + 1] = table.concat({scope, rate or '-', most or '-', most and sums[scope] or 0,
      used[1] or 0, used[2] or 0}, ' ')
  end
  return lines
end
