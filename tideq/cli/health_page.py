"""The health page of the monitor and the replicator: `/livez` for the orchestrator, `/health` for alerts on duties.

`/livez` ignores stale duties: a restart would not bring back an unreachable store.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator

from tideq.api.metrics.prometheus import exposition
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import STORE_CHECK, Duties
from tideq.workers.runtime.health import (
    LOOP_LAG,
    MAX_LOOP_LAG_SECONDS,
    Check,
    Health,
    HealthServer,
    memory_check,
    overall_health,
)

TICK_SECONDS = 0.5


class ProcessHealth:
    def __init__(self, duties: Duties) -> None:
        self._duties = duties
        self._ticked_at = time.monotonic()

    def health(self) -> Health:
        stale, is_open = self._duties.stale, self._duties.has_done(STORE_CHECK)
        lag = max(time.monotonic() - self._ticked_at - TICK_SECONDS, 0.0)
        return overall_health(
            {
                "memory_usage_percent": memory_check(),
                LOOP_LAG: Check(lag < MAX_LOOP_LAG_SECONDS, round(lag, 3), MAX_LOOP_LAG_SECONDS),
                "store_opened": Check(is_open, is_open, True),
                "stale_duties": Check(not stale, {each.duty: each.error or "takes too long" for each in stale}),
            }
        )

    async def tick(self) -> None:
        while True:
            self._ticked_at = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)


@contextlib.asynccontextmanager
async def health_page(host: str, port: int | None, queue_name: str, duties: Duties) -> AsyncGenerator[None]:
    """Serves the page and the metrics of the process, before the stores are reached too; without a port, nothing."""
    if port is None:
        yield
        return
    process_health, process = ProcessHealth(duties), str(os.getpid())

    def metrics() -> bytes:
        return exposition(duties.counters.samples(process), queue_name)

    page = HealthServer(host, port, process_health.health, metrics)
    page.start()
    try:
        async with background_task(process_health.tick()):
            yield
    finally:
        await asyncio.to_thread(page.end)
