"""Replication lag: how far history is behind the queue, and waiting for it to catch up."""

import asyncio
import contextlib
from collections.abc import Sequence

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.queue_core.errors import StoreReplaced, Unavailable
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID, entry_order, written_ms
from tideq.queue_core.scripts.runner import Scripts

LOOK_AGAIN_SECONDS = 0.005


class HistoryLag:
    """The lag of all partitions: history has caught up when each partition has."""

    def __init__(self, parts: Sequence["PartitionLag"]) -> None:
        self._parts = parts

    async def wait_until_caught_up(self, seconds: float, *, has_written: bool = False) -> bool:
        """As `PartitionLag` does. Of several partitions only one has the write, and each that is behind is flushed."""
        flushes = has_written and len(self._parts) == 1
        return all(
            await asyncio.gather(*(part.wait_until_caught_up(seconds, has_written=flushes) for part in self._parts))
        )

    async def lag_ms(self, now_ms: int) -> int:
        """Returns the age of the oldest transition that history lacks; 0 if it lacks none."""
        return max(await asyncio.gather(*(part.lag_ms(now_ms) for part in self._parts)))


class PartitionLag:
    def __init__(self, checkpoints: Checkpoints, consumer: OutboxConsumer, scripts: Scripts) -> None:
        self._checkpoints = checkpoints
        self._consumer = consumer
        self._scripts = scripts
        self._reading: asyncio.Task[Checkpoint | None] | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def wait_until_caught_up(self, seconds: float, *, has_written: bool = False) -> bool:
        """Returns whether history has every transition made before this call, after waiting up to `seconds`.

        Returns False if the store enters another epoch meanwhile: transitions that history lacks are lost then. A
        caller that has just written sets `has_written`: a flush is then requested before the first check. Raises
        StoreReplaced while the store is closed.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        if not self._scripts.epoch.isdigit():
            raise StoreReplaced(self._scripts.epoch)
        epoch = int(self._scripts.epoch)
        flushing = self._request_flush() if has_written else None
        end = (epoch, *entry_order(await self._consumer.last_id()))
        while (checkpoint := await self._read_checkpoint()) is None or checkpoint.order < end:
            flushing = flushing or self._request_flush()
            await asyncio.shield(flushing)
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return checkpoint.epoch == epoch

    def _request_flush(self) -> asyncio.Task[None]:
        """Returns the pending flush request, shared by all callers that began to wait before it was sent."""
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._send_flush_request())
        return self._flushing

    async def _send_flush_request(self) -> None:
        """Ignores an unavailable store: the replicator then writes after its full linger time."""
        self._flushing = None
        with contextlib.suppress(Unavailable):
            await self._consumer.request_flush()

    async def lag_ms(self, now_ms: int) -> int:
        checkpoint = await self._checkpoints.read()
        entries = await self._consumer.read(checkpoint.entry_id if checkpoint else FIRST_ID)
        return max(now_ms - written_ms(entries[0]), 0) if entries else 0

    async def _read_checkpoint(self) -> Checkpoint | None:
        """Returns a checkpoint shared by all waiting callers; its read may have begun before the call."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._checkpoints.read())
        return await asyncio.shield(self._reading)
