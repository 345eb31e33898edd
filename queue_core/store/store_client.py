"""redis-py's client as the queue uses it: no command is repeated, and connections can be left behind.

Not promised: that a failed command did nothing, unless its error is marked so. Callers repeat what may be repeated.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any

import hiredis
import redis.asyncio as redis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import ReadOnlyError, RedisError
from redis.exceptions import TimeoutError as TooLate

from tideq.queue_core.background import background_task
from tideq.queue_core.store.driver_errors import mark_unsent, store_errors

CONFIRM_SECONDS = 5.0

untyped: Any = hiredis


class StoreClient(redis.Redis):
    """A client of one server, or of the primary that sentinels name. Its connections can be left for new ones."""

    make_pool: Callable[[], Any]

    @classmethod
    def from_pools(cls, make_pool: Callable[[], Any]) -> Any:
        client: Any = cls.from_pool(make_pool())
        client.make_pool = make_pool
        return client


class SentinelClient(StoreClient):
    """Follows the primary. `aclose` also closes the connections to the sentinels, which redis-py leaves open."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        pool: Any = self.connection_pool
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()


async def drop_idle_connections(client: Any) -> None:
    """Make later commands go to the server that the client's URL means by now; a cluster client follows by itself.

    Idle connections are closed now, and busy ones after their command. The client gets a new pool, because redis-py's
    pool would still hand out the connections that it is closing.
    """
    if not isinstance(client, StoreClient):
        return
    former: Any = client.connection_pool
    client.connection_pool = client.make_pool()
    await former.update_active_connections_for_reconnect()
    with contextlib.suppress(RedisError):
        await former.disconnect(inuse_connections=False)


@contextlib.asynccontextmanager
async def subscribed(
    client: Any, channels: Collection[str], on_message: Callable[[str, str], None]
) -> AsyncGenerator[Awaitable[None]]:
    """Call `on_message` with the channel and text of each message; yields once the server has confirmed all channels.

    The yielded value ends with the error that ended the subscription. Messages may be lost with the connection.
    """
    unconfirmed = set(channels)

    async def receive(subscription: Any) -> None:
        message = await subscription.get_message(timeout=None)
        if message and message["type"] == "message":
            on_message(message["channel"].decode(), message["data"].decode())
        elif message and message["type"] == "subscribe":
            unconfirmed.discard(message["channel"].decode())

    async def receive_for_ever(subscription: Any) -> None:
        while True:
            await receive(subscription)

    with store_errors():
        async with client.pubsub() as subscription:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await subscription.subscribe(*channels)
                while unconfirmed:
                    await receive(subscription)
            async with background_task(receive_for_ever(subscription)) as ending:
                yield ending


@functools.cache
def store_connection(kind: Any) -> Any:
    """Returns the connection class with commands packed in C, and with errors that tell more."""

    class StoreConnection(kind):
        def __init__(self, *, socket_timeout: float | None = None, **options: Any) -> None:
            driver: Any = super()
            driver.__init__(socket_timeout=None, **options)
            self.command_timeout = socket_timeout
            """Kept here: redis-py's takes a task for every write before Python 3.12, which may lose a cancellation."""

        def pack_command(self, *args: Any) -> list[bytes]:
            """Packs a batch of 100 in 60 µs, redis-py in 372; leaves commands of two words and other types to it."""
            driver: Any = super()
            if " " in args[0]:
                return driver.pack_command(*args)
            try:
                return [untyped.pack_command(args)]
            except TypeError:
                return driver.pack_command(*args)

        async def connect(self) -> None:
            """Marks errors as unsent: no command was sent yet."""
            driver: Any = super()
            try:
                await driver.connect()
            except (RedisError, OSError) as error:
                mark_unsent(error)
                raise

        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            driver: Any = super()
            try:
                async with asyncio.timeout(self.command_timeout):
                    try:
                        await driver.send_packed_command(command, check_health)
                    except RuntimeError:
                        # uvloop refuses to write to a connection that was reset, so nothing of the command was sent.
                        await self.connect()
                        await driver.send_packed_command(command, check_health)
            except TimeoutError:
                raise self._too_late("command not read") from None
            except RuntimeError as error:
                raise ConnectionLost(str(error)) from error

        async def read_response(self, *args: Any, **options: Any) -> Any:
            """Leaves a server that is no primary any more, and raises its refusal, which Sentinel connections hide."""
            driver: Any = super()
            try:
                async with asyncio.timeout(self.command_timeout):
                    return await driver.read_response(*args, **options)
            except TimeoutError:
                raise self._too_late("no reply") from None
            except ReadOnlyError:
                driver.mark_for_reconnect()
                raise
            except ConnectionLost as error:
                if isinstance(error.__context__, ReadOnlyError):
                    raise error.__context__ from None
                raise

        def _too_late(self, what: str) -> TooLate:
            return TooLate(f"{what} within {self.command_timeout:g} s")

    return StoreConnection
