"""Measures history: the cost and the lag of the replicator, rebuilds, listing, bytes on disk.

`tideq replicate`, `tideq serve` and `tideq rebuild` run as processes of their own, on a Valkey and a PostgreSQL with
the wheels' defaults; load comes from another process. On two cores they share the machine, so read CPU and ratios
first. The results are in docs/history.md.
"""

from bench.figures import Findings, Plan
from bench.history import catching_up, disk, keeping_up, lag, pages, rebuilding
from bench.history.stores import history_stores
from bench.server import Servers


async def measure(servers: Servers, plan: Plan) -> Findings:
    async with history_stores(servers) as stores:
        caught_up = await catching_up.measure(stores, plan)
        kept_up = await keeping_up.measure(stores, plan)
        lags = await lag.measure(stores, plan)
    rebuilt = await rebuilding.measure(servers, plan)
    listed = await pages.measure(servers, plan)
    parts = (caught_up.findings, kept_up.findings, lags, rebuilt, listed, await disk.measure(servers, plan))
    return Findings(
        tuple(table for part in parts for table in part.tables),
        (
            catching_up.target(caught_up.tasks_per_second, kept_up.replicated, "with history"),
            catching_up.target(caught_up.tasks_per_second, kept_up.alone, "without a replicator"),
            *(target for part in parts for target in part.targets),
        ),
    )
