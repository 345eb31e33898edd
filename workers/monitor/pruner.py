"""The pruner: creates history's partitions before they are needed and drops old ones.

Uses PostgreSQL's clock alone. Where the clock of this process or of the store differs from it by more than an hour, one
of them is wrong, so nothing is dropped.
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
"""Pause after PartitionsBusy or ClocksDiffer. Each try behind a long reader blocks other sessions for 0.2 s."""
SLOW_SECONDS = 600.0
"""Pause after PartitionsSlow: the try blocked other sessions for up to its time limit."""

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
        """A postponed run is no failure; after INTERVAL_SECONDS without success the duty counts as stale."""
        while True:
            try:
                await prune()
                duty.succeeded()
                await asyncio.sleep(INTERVAL_SECONDS)
            except (PartitionsBusy, ClocksDiffer) as error:
                pause = SLOW_SECONDS if isinstance(error, PartitionsSlow) else BUSY_SECONDS
                log.warning("pruning postponed", error=str(error), retry_seconds=pause)
                await asyncio.sleep(pause)

    await (duties or Duties()).add("prune", work, INTERVAL_SECONDS, RETRY_SECONDS)
