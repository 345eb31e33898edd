"""The queue's time, kept by the store in `include/clock.lua`. No process's own clock takes part in it."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tideq.queue_core.errors import StoreUnavailable
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, number
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.connect import target_of
from tideq.queue_core.store.driver_errors import store_errors

RECHECK_SECONDS = 0.5
BEFORE_ALL_TIME_MS = -(10**14)


async def settled_time(scripts: Scripts) -> int:
    """Returns the queue's time in milliseconds, once any jump of the store's clock is confirmed.

    Works on a closed store too. Takes two seconds if the clock is more than an hour past the last write, as after a
    long stop of all processes: a claim made before the jump is confirmed would expire at once.
    """
    while True:
        now, is_unconfirmed = map(number, accepted(await scripts.call("read_clock")))
        if not is_unconfirmed:
            return now
        await asyncio.sleep(RECHECK_SECONDS)


class StoreTime:
    """The queue's time between two replies of its store: the time of the last reply, continued by the monotonic clock.

    Task ids carry it, and history keeps and drops tasks by their ids. With several partitions the last reply counts:
    either their clocks agree, or history drops nothing.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ahead_ms: float | None = None
        """Of the monotonic clock."""

    @property
    def is_read(self) -> bool:
        return self._ahead_ms is not None

    def note(self, now_ms: int) -> None:
        self._ahead_ms = now_ms - self._monotonic() * 1_000

    async def read(self, scripts: Scripts) -> None:
        """To be called before the first reply. Raises Unavailable, after which nothing was written."""
        try:
            self.note(await settled_time(scripts))
        except StoreUnavailable as error:
            error.is_untouched = True
            raise

    def now_ms(self) -> int:
        if self._ahead_ms is None:
            raise RuntimeError("the store's time was not read yet")
        return int(self._monotonic() * 1_000 + self._ahead_ms)


async def server_now_ms(client: Any, keys: Keys) -> int:
    """Returns the clock of the server that has this partition, without the queue's corrections."""
    with store_errors():
        seconds, microseconds = await client.time(**await target_of(client, keys.key("meta")))
    return int(seconds) * 1_000 + int(microseconds) // 1_000


class StoreClock:
    """Moves the time of the given partitions by hand: for tests and `tideq.testing` only."""

    def __init__(self, client: Any, *keys: Keys) -> None:
        self._client = client
        self._metas = [each.key("meta") for each in keys]

    async def advance(self, milliseconds: int) -> None:
        """Move time forward. A negative value has no effect on the queue's time, which never runs backwards."""
        for meta in self._metas:
            await self._client.hincrby(meta, "clock_offset_ms", milliseconds)

    async def stop(self, at_ms: int | None = None) -> None:
        """Stop time at the given instant, or at the latest instant written to any partition."""
        if at_ms is None:
            written = [await self._client.hget(meta, "now_ms") for meta in self._metas]
            at_ms = max((int(instant) for instant in written if instant), default=0)
        for meta in self._metas:
            await self._client.hset(meta, mapping={"clock_offset_ms": BEFORE_ALL_TIME_MS, "now_ms": at_ms})
