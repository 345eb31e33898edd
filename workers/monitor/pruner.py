"""The pruner: history's partitions are made before they are needed and dropped when they are old."""

import asyncio
import time

import structlog

from tideq.persistence.schema.partitions import Partitions
from tideq.queue_core.errors import QueueError

INTERVAL_SECONDS = 3_600.0
RETRY_SECONDS = 10.0

log = structlog.get_logger(__name__)


async def prune_for_ever(partitions: Partitions, dead_letter_ttl_ms: int) -> None:
    while True:
        try:
            now_ms = time.time_ns() // 1_000_000
            await partitions.make_ahead(now_ms)
            await partitions.prune(now_ms, dead_letter_ttl_ms)
            await asyncio.sleep(INTERVAL_SECONDS)
        except QueueError as error:
            log.warning("pruning failed", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
