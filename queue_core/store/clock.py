"""The queue's time, kept by the store in `include/clock.lua`. No process's own clock takes part in it."""

import asyncio
from typing import Any

from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import accepted, number
from tideq.queue_core.scripts.runner import Scripts
from tideq.queue_core.store.connect import node_of, store_errors

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


async def server_now_ms(client: Any, keys: Keys) -> int:
    """Returns the clock of the server that has this partition, without the queue's corrections."""
    with store_errors():
        node = await node_of(client, keys.key("meta"))
        seconds, microseconds = await (client.time(target_nodes=node) if node else client.time())
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
