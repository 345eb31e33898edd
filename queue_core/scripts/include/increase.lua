-- increase: add to a count in a hash; one that is no number begins anew
--
local function increase(key, field, amount)
  local sum = redis.pcall('HINCRBY', key, field, amount)
  if type(sum) == 'number' then return sum end
  redis.call('HDEL', key, field)
  return redis.call('HINCRBY', key, field, amount)
end
