-- count_trials: the trials of one task type that workers have used in this partition
-- For each worker until when its circuit is open here, and how many of its trials were used here: held, or ended well.
--
-- @flags no-writes
-- @prefix worker  hash
-- @arg   task_type  text
-- @row   worker_id
-- @reply OK
-- @use   blocked_types
local found = {'OK'}
for i = 1, row_count do
  local worker_id = row(i)
  load_blocks(worker_id, redis.call('HGET', worker_keys .. worker_id, 'circuits'), '')
  local scope = blocks['*'] and '*' or task_type
  local block = blocks[scope]
  local is_trial = block and block.kind == 'trial'
  found[2 * i] = block and block.kind == 'open' and string.format('%.0f', block.amount) or ''
  found[2 * i + 1] = is_trial and block.amount + count_held(worker_id, scope) or 0
end
return found
