-- trials_of: how workers on trial for a task type stand in this partition
-- For each until when its circuit is open here, and how many of its trials were given here: in hand, or ended well.
--
-- @flags no-writes
-- @prefix worker  hash
-- @arg   task_type  text
-- @row   worker_id
-- @reply OK
-- @use   trials
local found = {'OK'}
for i = 1, row_count do
  local worker_id = row(i)
  hold_back(worker_id, redis.call('HGET', worker_keys .. worker_id, 'circuits'), '')
  local scope = bars['*'] and '*' or task_type
  local bar = bars[scope]
  local is_trial = bar and bar.kind == 'trial'
  found[2 * i] = bar and bar.kind == 'open' and string.format('%.0f', bar.amount) or ''
  found[2 * i + 1] = is_trial and bar.amount + held_in(worker_id, scope) or 0
end
return found
