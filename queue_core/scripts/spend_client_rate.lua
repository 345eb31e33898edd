-- spend_client_rate: takes submissions from one client's rate, before a queue of several partitions writes them
-- Called on the partition that the client's name belongs to. A negative count returns what was not written.
--
-- @arg   count  int
-- @reply OK
-- @use   client_rate, commit
local refused = count > 0 and rate_refusal(count)
if refused then return refused end
spend_submissions(count)
commit()
return {'OK', now, bucket()}
