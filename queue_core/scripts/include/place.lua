-- place: gathers the scores of tasks in the one sorted set; flush_places() writes them at once
-- `heads` never ranks a lane worse than its best ready task: claims rely on that lower bound and correct it. Scores are
-- passed as texts: formatting a number costs half a microsecond, and neighbours often share one.
--
-- @key   queue  zset
-- @key   heads  zset
-- @use   band, wake
local scores, removed, head_ranks = {}, {}, {}
local last_ready_score, last_ready_text

local function place(task_id, score_text)
  local count = #scores
  scores[count + 1] = score_text
  scores[count + 2] = task_id
end

local function place_ready(task_id, task)
  local score = task.rank + band_floor(task.lane)
  if score ~= last_ready_score then last_ready_score, last_ready_text = score, string.format('%.0f', score) end
  place(task_id, last_ready_text)
  local best = head_ranks[task.lane]
  if not best or task.rank < best then head_ranks[task.lane] = task.rank end
  announce_ready(task.lane, 1)
  return last_ready_text
end

local function place_hidden(task_id, visible_at, visible_text)
  place(task_id, visible_text)
  announce_due(visible_at)
end

local function remove_from_queue(task_id)
  removed[#removed + 1] = task_id
end

local function flush_places()
  if #scores > 0 then redis.call('ZADD', queue_key, unpack(scores)) end
  if #removed > 0 then redis.call('ZREM', queue_key, unpack(removed)) end
  for lane, rank in pairs(head_ranks) do redis.call('ZADD', heads_key, 'LT', rank, lane) end
  scores, removed, head_ranks = {}, {}, {}
end
