-- worker_status: a worker's status, from the service's view and the worker's own
-- The worker's hash keeps them apart, so that neither overwrites the other: `state` is the service's (active, draining
-- for an operator's drain, unhealthy for failed probes, dead), `word` the worker's own (active, draining, unhealthy;
-- `leaving` while it deregisters). Any status but active gets no new work.
local function status_of(state, word)
  if state ~= 'active' and state ~= 'unhealthy' then return state or '' end
  if word == 'draining' then return word end
  return word == 'unhealthy' and word or state
end
