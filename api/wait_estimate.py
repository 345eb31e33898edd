"""Estimates how long a task waits, from the tasks finished in the last minute, read about once a second.

The statistics are read in the background: a submission neither makes a second store call nor waits for one, unless the
last read is older than `STALE_SECONDS`.
"""

import asyncio
from collections.abc import Sequence

from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.errors import QueueError
from tideq.queue_core.inspector import Inspector

FRESH_SECONDS = 1.0
STALE_SECONDS = 10.0


class WaitEstimator:
    def __init__(self, insight: Inspector) -> None:
        self._insight = insight
        self._finished_last_minute = 0
        self._read_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None

    async def estimate(self, ahead: int | None) -> float | None:
        """Seconds until that many tasks have finished; None if `ahead` is None or none finished in the last minute."""
        (seconds,) = await self.estimates([ahead])
        return seconds

    async def estimates(self, ahead: Sequence[int | None]) -> list[float | None]:
        if ahead != [None]:
            await self._refresh_if_old()
        finished = self._finished_last_minute
        return [None if each is None or not finished else round(each * 60 / finished, 1) for each in ahead]

    async def close(self) -> None:
        if self._refreshing is not None:
            await cancel_and_wait(self._refreshing)

    async def _refresh_if_old(self) -> None:
        age = asyncio.get_running_loop().time() - self._read_at
        if age > FRESH_SECONDS and self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        if age > STALE_SECONDS and self._refreshing is not None:
            await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        """A store that does not answer costs the estimate, not the request."""
        try:
            self._finished_last_minute = (await self._insight.stats()).finished_last_minute
        except QueueError:
            self._finished_last_minute = 0
        finally:
            self._read_at = asyncio.get_running_loop().time()
            self._refreshing = None
