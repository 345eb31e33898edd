-- wipe: deletes keys of the queue while the store is closed for it
-- Runs under the guard: a process that was overtaken while it slept cannot empty a store that another one has filled
-- since.
--
-- @flags allow-oom
-- @row   key
-- @reply OK
for i = 1, row_count do redis.call('UNLINK', row(i)) end
return {'OK', row_count}
