"""How far history has come, seen from outside."""

import asyncio
from typing import Any

from bench.history.stores import Stores
from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.queue_core.engine.feed import Feed
from tideq.queue_core.engine.keys import Keys

LOOK_SECONDS = 0.02
"""Each look takes about half a millisecond of the machine."""


class Watch:
    def __init__(self, stores: Stores) -> None:
        self._client: Any = stores.server.client
        self._outbox = Keys(stores.queue_name).key("outbox")
        self._feed = Feed(self._client, self._client, Keys(stores.queue_name))
        self._checkpoints = Checkpoints(stores.database, 0)

    async def checkpoint(self) -> Checkpoint:
        found = await self._checkpoints.read()
        assert found is not None
        return found

    async def caught_up(self) -> Checkpoint:
        """Once history has everything that the store has now."""
        last = await self._feed.last_id()
        while (reached := await self.checkpoint()).entry_id != last:
            await asyncio.sleep(LOOK_SECONDS)
        return reached

    async def drop_replicated(self) -> None:
        """What stays in the stream for listeners is read again by every replicator that starts: not what is measured."""
        await self._client.xtrim(self._outbox, maxlen=0)

    async def now_ms(self) -> int:
        seconds, microseconds = await self._client.time()
        return int(seconds) * 1_000 + int(microseconds) // 1_000
