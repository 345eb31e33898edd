"""The sweeper: recovers what has fallen due when no claim comes by to do it, and watches the store's memory.

Nothing depends on it alone: every claim recovers on its way. It keeps an idle queue honest.
"""

from collections.abc import Sequence

from tideq.queue_core.background import run_all
from tideq.queue_core.duties import Duties
from tideq.queue_core.queue import Queue
from tideq.queue_core.store.memory import MemoryWatch


async def sweep_for_ever(
    partitions: Sequence[Queue], memory: MemoryWatch, duties: Duties, interval_seconds: float = 1.0
) -> None:
    """Each partition by itself: one that cannot be swept keeps nobody from the others."""
    await run_all(
        *(duties.add_periodic("sweep", interval_seconds, each.sweep) for each in partitions),
        duties.add_periodic("memory", interval_seconds, memory.observe),
    )
