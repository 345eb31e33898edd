"""The ways a call can take, behind one face: our own connections or httpx, in an asyncio loop or in threads.

And a server for them that does with each connection what a test says.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, Protocol

from tideq.client._async.lean import AsyncLean
from tideq.client._async.through_httpx import AsyncThroughHttpx
from tideq.client._sync.lean import Lean
from tideq.client._sync.through_httpx import ThroughHttpx
from tideq.client.calls.base import Call
from tideq.client.config import client_config
from tideq.client.http.answers import Response
from tideq.client.http.timeouts import Timeouts
from tideq.queue_core.background import cancel_and_wait

Way = Literal["lean async", "lean sync", "httpx async", "httpx sync"]
WAYS: tuple[Way, ...] = ("lean async", "lean sync", "httpx async", "httpx sync")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATIENT = Timeouts(connect=30, read=30, write=30, pool=30)


class Sender(Protocol):
    async def send(self, call: Call[Any], timeouts: Timeouts = PATIENT) -> Response: ...
    async def aclose(self) -> None: ...


class _Awaited:
    def __init__(self, way: AsyncLean | AsyncThroughHttpx) -> None:
        self._way = way

    async def send(self, call: Call[Any], timeouts: Timeouts = PATIENT) -> Response:
        return await self._way.send(call, timeouts)

    async def aclose(self) -> None:
        await self._way.aclose()


class _Threaded:
    def __init__(self, way: Lean | ThroughHttpx) -> None:
        self._way = way

    async def send(self, call: Call[Any], timeouts: Timeouts = PATIENT) -> Response:
        return await asyncio.to_thread(self._way.send, call, timeouts)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._way.close)


@contextlib.asynccontextmanager
async def sender(
    way: Way, url: str, *, key: str = "", connections: int = 10, verify: ssl.SSLContext | bool = True
) -> AsyncGenerator[Sender]:
    connection = client_config(url, key, None, connections, verify, {})
    kinds: dict[Way, Callable[[], Sender]] = {
        "lean async": lambda: _Awaited(AsyncLean(connection)),
        "lean sync": lambda: _Threaded(Lean(connection)),
        "httpx async": lambda: _Awaited(AsyncThroughHttpx(connection)),
        "httpx sync": lambda: _Threaded(ThroughHttpx(connection)),
    }
    made = kinds[way]()
    try:
        yield made
    finally:
        await made.aclose()


def post(body: bytes = b"{}", *, is_repeatable: bool = True, **headers: str) -> Call[bytes]:
    return Call(method="POST", path="/x", read=bytes, body=body, headers=headers, is_repeatable=is_repeatable)


@contextlib.asynccontextmanager
async def server(
    serve: Serve, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncGenerator[str]:
    """Its address without a scheme."""

    serving: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            serving.add(task)
            task.add_done_callback(serving.discard)
        with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    listening = await asyncio.start_server(accept, host, port, ssl=tls)
    try:
        found = listening.sockets[0].getsockname()[1]
        yield f"[{host}]:{found}" if ":" in host else f"{host}:{found}"
    finally:
        listening.close()
        await cancel_and_wait(*serving)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    found = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
    return head + await reader.readexactly(int(found or 0))


def answering(*pieces: bytes, closes: bool = False) -> Serve:
    """The same answer to every request, piece by piece; the connection stays open unless told otherwise."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await request_of(reader):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if closes:
                return

    return serve
