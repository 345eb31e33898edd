"""What is published on some channels, told the moment it comes.

Of the driver's own subscription a message takes 90 to 150 µs of CPU, and every single submission is one; read here it
takes 10. Messages may be lost with the connection: whoever must not miss one looks for himself.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any, cast

from redis.exceptions import RedisError

from tideq.queue_core.background import background_task
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.line import StoreClient
from tideq.queue_core.store.wire import Wire

CONFIRM_SECONDS = 5.0

Hear = Callable[[str, str], None]
"""Given the channel and the message."""


@contextlib.asynccontextmanager
async def subscribed(client: Any, channels: Collection[str], hear: Hear) -> AsyncGenerator[Awaitable[None]]:
    """From when the server has confirmed it. What it yields ends with why the subscription did, and never else."""
    way = _read_here if isinstance(client, StoreClient) else _read_by_the_driver
    with store_errors():
        async with way(client, channels, hear) as ending:
            yield ending


@contextlib.asynccontextmanager
async def _read_here(client: StoreClient, channels: Collection[str], hear: Hear) -> AsyncGenerator[Awaitable[None]]:
    pool = cast("Any", client.connection_pool)
    hearing = Hearing(await pool.get_connection(), channels, hear)
    try:
        async with asyncio.timeout(CONFIRM_SECONDS):
            await hearing.confirmed
        yield hearing.ending
    finally:
        await hearing.end()
        await pool.release(hearing.connection)


@contextlib.asynccontextmanager
async def _read_by_the_driver(client: Any, channels: Collection[str], hear: Hear) -> AsyncGenerator[Awaitable[None]]:
    async with client.pubsub() as subscription:
        await subscription.subscribe(*channels)

        async def listen() -> None:
            async for message in subscription.listen():
                if message["type"] == "message":
                    hear(text(message["channel"]), text(message["data"]))

        async with background_task(listen()) as ending:
            yield ending


class Hearing(Wire):
    def __init__(self, connection: Any, channels: Collection[str], hear: Hear) -> None:
        super().__init__(connection)
        loop = asyncio.get_running_loop()
        self.confirmed: asyncio.Future[None] = loop.create_future()
        self.ending: asyncio.Future[None] = loop.create_future()
        self._unconfirmed_count = len(channels)
        self._hear = hear
        self.send(("SUBSCRIBE", *channels))

    def hear(self, reply: Any) -> None:
        if isinstance(reply, RedisError):
            self.give_up(reply)
        elif reply[0] == b"message":
            self._hear(text(reply[1]), text(reply[2]))
        elif reply[0] == b"subscribe":
            self._unconfirmed_count -= 1
            if not self._unconfirmed_count and not self.confirmed.done():
                self.confirmed.set_result(None)

    def give_up(self, error: RedisError) -> None:
        for each in (self.confirmed, self.ending):
            if not each.done():
                each.set_exception(error)
                each.exception()  # it is known, also where nobody waits for it
        self.abort()
