"""How fast the queue moves, for estimates: what finished in the last minute, as of about a second ago.

Looking is done beside the requests: a submission neither makes a second store call nor waits for one, unless nobody
asked for so long that what is remembered says nothing any more.
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
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    async def estimate(self, ahead: int | None) -> float | None:
        """Seconds until so many have finished; None where nobody knows: nothing finished lately, or it is hidden."""
        (seconds,) = await self.estimates([ahead])
        return seconds

    async def estimates(self, ahead: Sequence[int | None]) -> list[float | None]:
        if ahead != [None]:
            await self._keep_up()
        finished = self._finished_last_minute
        return [None if each is None or not finished else round(each * 60 / finished, 1) for each in ahead]

    async def close(self) -> None:
        if self._looking is not None:
            await cancel_and_wait(self._looking)

    async def _keep_up(self) -> None:
        age = asyncio.get_running_loop().time() - self._looked_at
        if age > FRESH_SECONDS and self._looking is None:
            self._looking = asyncio.create_task(self._look())
        if age > STALE_SECONDS and self._looking is not None:
            await asyncio.shield(self._looking)

    async def _look(self) -> None:
        """An estimate is a courtesy: a store that does not answer costs the estimate, not the request."""
        try:
            self._finished_last_minute = (await self._insight.stats()).finished_last_minute
        except QueueError:
            self._finished_last_minute = 0
        finally:
            self._looked_at = asyncio.get_running_loop().time()
            self._looking = None
