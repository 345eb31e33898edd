"""The sweeper: recovers what has fallen due when no claim comes by to do it, and watches the store's memory.

Nothing depends on it alone: every claim recovers on its way. It keeps an idle queue honest.
"""

import asyncio

import structlog

from tideq.queue_core.engine.memory import MemoryWatch
from tideq.queue_core.engine.queue import Queue
from tideq.queue_core.errors import QueueError

log = structlog.get_logger(__name__)


async def sweep_for_ever(queue: Queue, memory: MemoryWatch, interval_seconds: float = 1.0) -> None:
    while True:
        try:
            await queue.sweep()
            await memory.observe()
        except QueueError as error:
            log.warning("sweep failed", error=str(error))
        await asyncio.sleep(interval_seconds)
