-- lane_type: the task type of a lane, read once a script
--
-- @key   lane_names  hash
local lane_types = {}

local function lane_type(lane)
  if not lane_types[lane] then
    lane_types[lane] = string.match(redis.call('HGET', lane_names_key, lane) or '', '^[^|]*')
  end
  return lane_types[lane]
end
