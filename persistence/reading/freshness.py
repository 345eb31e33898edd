"""How far history is behind the queue, and waiting for it to catch up."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.queue_core.engine.feed import FIRST_ID, Feed, entry_order, written_ms
from tideq.queue_core.engine.scripts import Scripts
from tideq.queue_core.errors import StoreReplaced, Unavailable

LOOK_AGAIN_SECONDS = 0.005


class Fresh(Protocol):
    """What those who read history want to know of it."""

    async def catch_up(self, seconds: float, *, has_written: bool = False) -> bool: ...

    async def lag_ms(self, now_ms: int) -> int: ...


class FreshnessOfAll:
    """Of all partitions: history has caught up when it has with each."""

    def __init__(self, parts: Sequence["Freshness"]) -> None:
        self._parts = parts

    async def catch_up(self, seconds: float, *, has_written: bool = False) -> bool:
        """Only one of them has what was written: the others are hurried when they are seen to be behind."""
        return all(await asyncio.gather(*(part.catch_up(seconds) for part in self._parts)))

    async def lag_ms(self, now_ms: int) -> int:
        return max(await asyncio.gather(*(part.lag_ms(now_ms) for part in self._parts)))


class Freshness:
    def __init__(self, checkpoints: Checkpoints, feed: Feed, scripts: Scripts) -> None:
        self._checkpoints = checkpoints
        self._feed = feed
        self._scripts = scripts
        self._looking: asyncio.Task[Checkpoint | None] | None = None
        self._hurrying: asyncio.Task[None] | None = None

    async def catch_up(self, seconds: float, *, has_written: bool = False) -> bool:
        """Whether history has everything that had happened when this was asked, waiting for it if need be.

        Not if the store has entered another epoch meanwhile: what history had not heard of by then is lost. History is
        certain to be behind for someone who has just written something: it is hurried before it is looked at.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        if not self._scripts.epoch.isdigit():
            raise StoreReplaced(self._scripts.epoch)
        epoch = int(self._scripts.epoch)
        hurrying = self._hurry() if has_written else None
        end = (epoch, *entry_order(await self._feed.last_id()))
        while (checkpoint := await self._look()) is None or checkpoint.order < end:
            hurrying = hurrying or self._hurry()
            await asyncio.shield(hurrying)
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return checkpoint.epoch == epoch

    def _hurry(self) -> asyncio.Task[None]:
        """One word for everybody who began to wait before it went out."""
        if self._hurrying is None:
            self._hurrying = asyncio.create_task(self._ask_for_haste())
        return self._hurrying

    async def _ask_for_haste(self) -> None:
        """A store that cannot take the word has a replicator that lingers its time: later, and no less certain."""
        self._hurrying = None
        with contextlib.suppress(Unavailable):
            await self._feed.hurry()

    async def lag_ms(self, now_ms: int) -> int:
        """How old the oldest transition is that history does not have yet."""
        checkpoint = await self._checkpoints.read()
        entries = await self._feed.read(checkpoint.entry_id if checkpoint else FIRST_ID)
        return max(now_ms - written_ms(entries[0]), 0) if entries else 0

    async def _look(self) -> Checkpoint | None:
        """One look serves everyone in the process who waits. It may have begun too early to see enough: look again."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._checkpoints.read())
        return await asyncio.shield(self._looking)
