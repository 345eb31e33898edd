"""What history costs, and how far behind it is: the replicator, the rebuild, listing, bytes on disk.

Everything runs as operators run it: `tideq replicate`, `tideq serve` and `tideq rebuild` are processes of their own, on
a Valkey and a PostgreSQL as the wheels set them up, and load comes from yet another process. On two cores they share
the machine, so read CPU and ratios first. What was found is in docs/history.md.
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
            catching_up.target(caught_up.tasks_per_second, kept_up.alone, "nobody replicating"),
            *(target for part in parts for target in part.targets),
        ),
    )
