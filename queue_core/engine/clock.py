"""The queue's time as its store keeps it: `include/clock.lua` says how.

No process's own clock takes part in it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.replies import accepted, number
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.engine.store import node_of, store_errors
from tideq.queue_core.errors import StoreUnavailable

LOOK_SECONDS = 0.5
BEFORE_ALL_TIME_MS = -(10**14)


async def settled_time(scripts: Scripts) -> int:
    """The queue's time in milliseconds, once no jump of the store's clock is in doubt.

    Also of a store that is closed. Takes two seconds where the clock reads more than an hour past the last write, as
    after a longer stop of everything: whoever began before that would lose what it holds to the jump.
    """
    while True:
        now, is_doubted = map(number, accepted(await scripts.call("read_clock")))
        if not is_doubted:
            return now
        await asyncio.sleep(LOOK_SECONDS)


class StoreTime:
    """The queue's time between two replies of its store: as the last one had it, carried on by the monotonic clock.

    For ids, by which history keeps and drops tasks. Of several partitions whichever answered last counts: their clocks
    agree, or nothing is dropped.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ahead_ms: float | None = None
        """Of the monotonic clock."""

    @property
    def is_known(self) -> bool:
        return self._ahead_ms is not None

    def note(self, now_ms: int) -> None:
        self._ahead_ms = now_ms - self._monotonic() * 1_000

    async def learn(self, scripts: Scripts) -> None:
        """For what comes before any reply. Raises Unavailable, and then nothing was written."""
        try:
            self.note(await settled_time(scripts))
        except StoreUnavailable as error:
            error.is_untouched = True
            raise

    def now_ms(self) -> int:
        if self._ahead_ms is None:
            raise RuntimeError("the store's time is not known yet")
        return int(self._monotonic() * 1_000 + self._ahead_ms)


async def server_now_ms(client: Any, keys: Keys) -> int:
    """What the server that has this partition says the time is, whatever the queue makes of it."""
    with store_errors():
        node = await node_of(client, keys.key("meta"))
        seconds, microseconds = await (client.time(target_nodes=node) if node else client.time())
    return int(seconds) * 1_000 + int(microseconds) // 1_000


class StoreClock:
    """Moves time by hand, of all partitions whose keys it is given: for tests and `tideq.testing` only."""

    def __init__(self, client: Any, *keys: Keys) -> None:
        self._client = client
        self._metas = [each.key("meta") for each in keys]

    async def advance(self, milliseconds: int) -> None:
        """Let this much time pass at once. The queue's time never runs backwards, whatever is asked."""
        for meta in self._metas:
            await self._client.hincrby(meta, "clock_offset_ms", milliseconds)

    async def stop(self, at_ms: int | None = None) -> None:
        """Time stands still from now on, at the last instant written to any partition or at this one."""
        if at_ms is None:
            written = [await self._client.hget(meta, "now_ms") for meta in self._metas]
            at_ms = max((int(instant) for instant in written if instant), default=0)
        for meta in self._metas:
            await self._client.hset(meta, mapping={"clock_offset_ms": BEFORE_ALL_TIME_MS, "now_ms": at_ms})
