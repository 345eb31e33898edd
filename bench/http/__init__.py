"""What the service costs over real HTTP on loopback: one `tideq serve` process, load from client processes of its own.

Clients are our own (`wire.py`): they write ready-made bytes and look at little more than the length of an answer, so
that their cost does not hide the server's. On a machine of two cores clients, service and store share them all the
same: read CPU and ratios first. Everything is held against an empty JSON echo on the same server in the same run.
"""

from bench.figures import Findings, Plan
from bench.http import latencies, rates
from bench.http.processes import api, empty_echo
from bench.server import Servers


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as store, api(store.url) as service, empty_echo() as empty:
        found = await rates.measure(store, service, empty, plan)
        waits = await latencies.measure(service, plan, found.lives_per_second)
    return Findings((*found.tables, *waits.tables), (*found.targets, *waits.targets))
