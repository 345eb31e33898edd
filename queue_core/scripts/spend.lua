-- spend: submissions of one client to a queue of several partitions, before they are written to any
-- Asked of the partition that the client's name belongs to. What came to nothing is given back with a negative count.
--
-- @arg   count  int
-- @reply OK
-- @use   client_rate, commit
local refused = count > 0 and rate_refusal(count)
if refused then return refused end
spend_submissions(count)
commit()
return {'OK', now, bucket()}
