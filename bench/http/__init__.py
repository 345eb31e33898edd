"""Measures the service over HTTP on loopback: one `tideq serve` process, with load from client processes.

The clients (`wire.py`) write prepared bytes and read little more than the length of an answer, so that they use little
CPU. On two cores, clients, service and store share the machine: read CPU and ratios first. All figures are compared
with an empty JSON echo on the same server in the same run.
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
