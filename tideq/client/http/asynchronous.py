"""Connections for code that runs in an asyncio loop.

A request costs 25 to 60 µs of CPU here, and 720 to 1,050 through httpx (loopback, 700 bytes each way).
"""

import asyncio
import contextlib
import ipaddress
import ssl
import threading
from collections.abc import Callable
from typing import Any

from tideq.client.http.address import ServiceAddress
from tideq.client.http.answers import Response
from tideq.client.http.async_connection import AsyncConnection
from tideq.client.http.exchange_failures import Unsent
from tideq.client.http.timeouts import Timeouts

MAX_IDLE = 20
IDLE_SECONDS = 5.0
"""Servers and what stands between close connections that rest; those that rested longer are not relied on."""
HAPPY_EYEBALLS_SECONDS = 0.25


class AsyncPool:
    """One server, as many connections as there are requests at a time, kept for the next ones.

    Connections belong to the loop they were made in. Several loops may ask at once, each in its thread and each with as
    many connections as are allowed.
    """

    def __init__(
        self,
        address: ServiceAddress,
        trust: Callable[[], ssl.SSLContext],
        max_connections: int,
        *,
        max_idle: int = MAX_IDLE,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._address = address
        self._trust = trust
        self._tls: ssl.SSLContext | None = None
        self._max_connections = max_connections
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._is_closed = False
        self._kept_by: dict[asyncio.AbstractEventLoop, _Kept] = {}
        self._changing = threading.Lock()

    @staticmethod
    def fits_here() -> bool:
        """Trio runs its tasks by itself, or as a guest of an asyncio loop which knows nothing of them."""
        try:
            return asyncio.current_task() is not None
        except RuntimeError:
            return False

    async def ask(self, message: bytes, timeouts: Timeouts, *, is_repeatable: bool = True) -> Response:
        """Raises a Failure. What must not be sent twice gets a new connection: a kept one may be about to end."""
        kept = self._kept()
        await kept.enter(timeouts.pool)
        try:
            while connection := kept.take(self._idle_seconds):
                if not is_repeatable:
                    connection.abort()
                    break
                return await self._exchange(kept, connection, message, timeouts)
            return await self._exchange(kept, await self._connect(kept.loop, timeouts.connect), message, timeouts)
        finally:
            kept.leave()

    async def aclose(self) -> None:
        """Also what is under way ends: whoever waits for it is told."""
        self.close()
        await asyncio.sleep(0)  # in which they are closed

    def close(self) -> None:
        with self._changing:
            self._is_closed = True
            kept_by, self._kept_by = self._kept_by, {}
        for loop, kept in kept_by.items():
            if loop is asyncio.get_running_loop():
                kept.close()
            else:
                kept.abandon()

    def _kept(self) -> "_Kept":
        self._refuse_if_closed()
        loop = asyncio.get_running_loop()
        return self._kept_by.get(loop) or self._kept_for(loop)

    def _kept_for(self, loop: asyncio.AbstractEventLoop) -> "_Kept":
        """One that is new. Nothing tells when one ends: those that have are forgotten here."""
        with self._changing:
            self._refuse_if_closed()
            self._kept_by = {each: kept for each, kept in self._kept_by.items() if not each.is_closed()}
            kept = self._kept_by[loop] = _Kept(loop, self._max_connections)
            return kept

    def _refuse_if_closed(self) -> None:
        """Asked again after everything that is waited for: meanwhile it may have been closed."""
        if self._is_closed:
            raise RuntimeError("the client is closed")

    async def _connect(self, loop: asyncio.AbstractEventLoop, seconds: float) -> AsyncConnection:
        self._refuse_if_closed()
        options: dict[str, Any] = {}
        if self._address.is_secure:
            self._tls = self._tls or self._trust()
            options["ssl"] = self._tls
        # uvloop knows nothing of it; and a race that is broken off may leave its socket to the garbage collector.
        if isinstance(loop, asyncio.BaseEventLoop) and not _is_one_address(self._address.host):
            options["happy_eyeballs_delay"] = HAPPY_EYEBALLS_SECONDS
        where = self._address.host, self._address.port
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(lambda: AsyncConnection(loop), *where, **options)
        except TimeoutError as error:
            raise Unsent(f"no connection to {where[0]} port {where[1]} within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:
            raise Unsent(str(error) or type(error).__name__) from error
        return connection

    async def _exchange(
        self, kept: "_Kept", connection: AsyncConnection, message: bytes, timeouts: Timeouts
    ) -> Response:
        """A request that is broken off takes its connection with it: the server notices, and gives it nothing."""
        kept.busy.add(connection)
        try:
            self._refuse_if_closed()
            answer = await connection.ask(message, timeouts)
        except BaseException:
            connection.abort()
            raise
        finally:
            kept.busy.discard(connection)
        if connection.is_reusable and len(kept.idle) < self._max_idle and not self._is_closed:
            kept.idle.append(connection)
        else:
            connection.abort()
        return answer


def _is_one_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Kept:
    """The connections of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_connections: int) -> None:
        self.loop = loop
        self.idle: list[AsyncConnection] = []
        self.busy: set[AsyncConnection] = set()
        self._slots = asyncio.Semaphore(max_connections)
        self._max_connections = max_connections

    async def enter(self, seconds: float) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # at once
            return
        try:
            async with asyncio.timeout(seconds):
                await self._slots.acquire()
        except TimeoutError as error:
            raise Unsent(f"all {self._max_connections} connections were busy for {seconds:g} s") from error

    def leave(self) -> None:
        self._slots.release()

    def take(self, idle_seconds: float) -> AsyncConnection | None:
        """The one used last, unless it rested too long: then so did all others."""
        while self.idle:
            connection = self.idle.pop()
            is_fresh = connection.is_reusable and self.loop.time() - connection.moved_at < idle_seconds
            if is_fresh and not connection.has_ended:
                return connection
            connection.abort()
        return None

    def close(self) -> None:
        for connection in (*self.idle, *self.busy):
            connection.abort()
        self.idle.clear()

    def abandon(self) -> None:
        """By another loop; where this one has ended, so have its connections."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.close)
