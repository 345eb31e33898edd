"""Reads the replicator's checkpoint and the length of the outbox."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from bench.history.stores import Stores
from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.queue_core.background import background_task
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.scripts.keys import Keys

LOOK_SECONDS = 0.02
"""Each look takes about half a millisecond of CPU."""
BACKLOG_SECONDS = 0.2


class Watch:
    def __init__(self, stores: Stores) -> None:
        self._client: Any = stores.server.client
        self._outbox = Keys(stores.queue_name).key("outbox")
        self._consumer = OutboxConsumer(self._client, Keys(stores.queue_name))
        self._checkpoints = Checkpoints(stores.database, 0)

    async def checkpoint(self) -> Checkpoint:
        found = await self._checkpoints.read()
        assert found is not None
        return found

    async def caught_up(self) -> Checkpoint:
        """Returns the checkpoint once history has all events that the store has now."""
        last, reached = await self._consumer.last_id(), await self.checkpoint()
        while reached.entry_id != last:
            await asyncio.sleep(LOOK_SECONDS)
            reached = await self.checkpoint()
        return reached

    @asynccontextmanager
    async def backlogs(self, events_an_entry: int) -> AsyncGenerator[list[int]]:
        """Numbers of events not yet in history, read repeatedly and at the end. Call it when history has all events."""
        seen: list[int] = []
        start = await self._ahead(events_an_entry)

        async def look() -> None:
            seen.append(await self._ahead(events_an_entry) - start)

        async def look_on() -> None:
            while True:
                await asyncio.sleep(BACKLOG_SECONDS)
                await look()

        async with background_task(look_on()):
            yield seen
            await look()

    async def _ahead(self, events_an_entry: int) -> int:
        stream = await self._client.xinfo_stream(self._outbox)
        return stream["entries-added"] * events_an_entry - (await self.checkpoint()).event_count

    async def drop_replicated(self) -> None:
        """Trims the stream to its last entry, so that a new replicator does not read the kept entries again.

        The last entry shows the replicator that it has missed none.
        """
        await self._client.xtrim(self._outbox, maxlen=1)

    async def now_ms(self) -> int:
        seconds, microseconds = await self._client.time()
        return int(seconds) * 1_000 + int(microseconds) // 1_000
