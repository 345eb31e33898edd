"""The pruner: history's partitions are made before they are needed and dropped when they are old.

By PostgreSQL's clock alone. This process's is only compared with it, as is the store's: where they differ by more than
an hour one of them is wrong, nobody knows which, and nothing is dropped.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from tideq.persistence.schema.clocks import Clocks, ClocksDiffer, StoreInstants
from tideq.persistence.schema.partitions import Partitions, PartitionsBusy, PartitionsSlow
from tideq.queue_core.duties import Duties, Duty

INTERVAL_SECONDS = 3_600.0
RETRY_SECONDS = 10.0
BUSY_SECONDS = 60.0
"""For what only time or people will mend. Every try behind a long reader has others wait a fifth of a second."""
SLOW_SECONDS = 600.0
"""After one that had everybody wait for as long as it may take, and came to nothing."""

log = structlog.get_logger(__name__)


async def prune_for_ever(
    partitions: Partitions,
    dead_letter_ttl_ms: int,
    duties: Duties | None = None,
    store: StoreInstants | None = None,
    on_clocks: Callable[[Clocks], None] = lambda _: None,
) -> None:
    async def prune() -> None:
        await partitions.make_ahead()
        clocks = await partitions.clocks(time.time_ns() // 1_000_000, store)
        on_clocks(clocks)
        await partitions.prune(clocks, dead_letter_ttl_ms)

    async def work(duty: Duty) -> None:
        """What is postponed is no failure, and stale all the same once it has been for too long."""
        while True:
            try:
                await prune()
                duty.succeeded()
                await asyncio.sleep(INTERVAL_SECONDS)
            except (PartitionsBusy, ClocksDiffer) as error:
                pause = SLOW_SECONDS if isinstance(error, PartitionsSlow) else BUSY_SECONDS
                log.warning("pruning postponed", error=str(error), retry_seconds=pause)
                await asyncio.sleep(pause)

    await (duties or Duties()).keep("prune", work, INTERVAL_SECONDS, RETRY_SECONDS)
