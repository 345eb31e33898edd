"""How far history has come, seen from outside."""

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
"""Each look takes about half a millisecond of the machine."""
BACKLOG_SECONDS = 0.2


class Watch:
    def __init__(self, stores: Stores) -> None:
        self._client: Any = stores.server.client
        self._outbox = Keys(stores.queue_name).key("outbox")
        self._feed = OutboxConsumer(self._client, self._client, Keys(stores.queue_name))
        self._checkpoints = Checkpoints(stores.database, 0)

    async def checkpoint(self) -> Checkpoint:
        found = await self._checkpoints.read()
        assert found is not None
        return found

    async def caught_up(self) -> Checkpoint:
        """Once history has everything that the store has now."""
        last, reached = await self._feed.last_id(), await self.checkpoint()
        while reached.entry_id != last:
            await asyncio.sleep(LOOK_SECONDS)
            reached = await self.checkpoint()
        return reached

    @asynccontextmanager
    async def backlogs(self, events_an_entry: int) -> AsyncGenerator[list[int]]:
        """How many events history lacks, every now and then and once more at the end. Begins when it has everything."""
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
        """What is left in the stream for listeners every new replicator reads again, which is not to be measured.

        All but the last entry: by that one a replicator sees that it has missed nothing.
        """
        await self._client.xtrim(self._outbox, maxlen=1)

    async def now_ms(self) -> int:
        seconds, microseconds = await self._client.time()
        return int(seconds) * 1_000 + int(microseconds) // 1_000
