-- increase: adds to a count in a hash; a value that is not a number counts from zero again
--
local function increase(key, field, amount)
  local sum = redis.pcall('HINCRBY', key, field, amount)
  if type(sum) == 'number' then return sum end
  redis.call('HDEL', key, field)
  return redis.call('HINCRBY', key, field, amount)
end
