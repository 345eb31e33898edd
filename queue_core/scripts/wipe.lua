-- wipe: keys of the queue, removed while the store is closed for it
-- Under the guard, so that who was overtaken while it slept cannot empty a store that somebody else has filled since.
--
-- @flags allow-oom
-- @row   key
-- @reply OK
for i = 1, row_count do redis.call('UNLINK', row(i)) end
return {'OK', row_count}
