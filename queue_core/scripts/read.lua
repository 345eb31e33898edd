-- read: a task as it is now, with its place in its lane
--
-- @flags no-writes
-- @key   queue        zset
-- @key   records      hash
-- @key   definitions  hash
-- @key   results      hash
-- @prefix attempt_notes  hash
-- @row   task_id
-- @reply OK
-- @use   band, position, load_task
local replies, ids = {'OK', now}, row_ids()
local records = redis.call('HMGET', records_key, unpack(ids))
local definitions = redis.call('HMGET', definitions_key, unpack(ids))
local results = redis.call('HMGET', results_key, unpack(ids))
for i, task_id in ipairs(ids) do
  local score = redis.call('ZSCORE', queue_key, task_id) or ''
  local is_ready = score ~= '' and tonumber(score) < 0 and records[i]
  local task = is_ready and read_record(records[i]) or UNREADABLE
  local place = task ~= UNREADABLE and lane_position(task_id, task.lane) or ''
  replies[i + 2] = {score, place, records[i] or '', definitions[i] or '', results[i] or '',
    redis.call('HGETALL', attempt_notes_keys .. task_id)}
end
return replies
