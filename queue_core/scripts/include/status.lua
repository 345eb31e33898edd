-- status: how a worker stands: by what the service found, and by what the worker says of itself
-- Kept apart in the worker's hash, so that neither undoes the other: `state` is the service's (active, draining for an
-- operator's drain, unhealthy for failed probes, dead), `word` the worker's own (active, draining, unhealthy; `leaving`
-- while it is dismissed). Any status but active gets no new work.
local function status_of(state, word)
  if state ~= 'active' and state ~= 'unhealthy' then return state or '' end
  if word == 'draining' then return word end
  return word == 'unhealthy' and word or state
end
