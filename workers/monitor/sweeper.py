"""The sweeper: recovers due tasks while there are no claims, and watches the store's memory.

Recovery does not depend on it: every claim also recovers due tasks.
"""

from collections.abc import Sequence

from tideq.queue_core.background import run_all
from tideq.queue_core.duties import Duties
from tideq.queue_core.queue import Queue
from tideq.queue_core.store.memory import MemoryWatch


async def sweep_for_ever(
    partitions: Sequence[Queue], memory: MemoryWatch, duties: Duties, interval_seconds: float = 1.0
) -> None:
    """One duty for each partition: a partition that cannot be swept does not stop the others."""
    await run_all(
        *(duties.add_periodic("sweep", interval_seconds, each.sweep) for each in partitions),
        duties.add_periodic("memory", interval_seconds, memory.observe),
    )
