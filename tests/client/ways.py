"""Both HTTP clients behind one face, in an asyncio loop or in threads, and a server that a test scripts."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Literal, Protocol

from tideq.client.calls.base import Call
from tideq.client.http.endpoint import endpoint_of
from tideq.client.http.exchange import Response, Timeouts
from tideq.client.http.over_aiohttp import AsyncHttp
from tideq.client.http.over_urllib3 import Http
from tideq.queue_core.background import cancel_and_wait

Way = Literal["async", "sync"]
WAYS: tuple[Way, ...] = ("async", "sync")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATIENT = Timeouts(connect=30, read=30, write=30, pool=30)


class Sender(Protocol):
    async def send(self, call: Call[Any]) -> Response: ...
    async def aclose(self) -> None: ...


class _Awaited:
    def __init__(self, http: AsyncHttp) -> None:
        self._http = http

    async def send(self, call: Call[Any]) -> Response:
        return await self._http.request(call)

    async def aclose(self) -> None:
        await self._http.aclose()


class _Threaded:
    def __init__(self, http: Http) -> None:
        self._http = http

    async def send(self, call: Call[Any]) -> Response:
        return await asyncio.to_thread(self._http.request, call)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._http.close)


def blocking(url: str, connections: int = 10) -> Http:
    return Http(endpoint_of(url, {}), PATIENT, verify=True, max_connections=connections)


@contextlib.asynccontextmanager
async def sender(
    way: Way,
    url: str,
    *,
    key: str = "",
    connections: int = 10,
    verify: ssl.SSLContext | bool = True,
    timeouts: Timeouts = PATIENT,
) -> AsyncGenerator[Sender]:
    endpoint = endpoint_of(url, {"User-Agent": "tideq-python/0", **({"Authorization": f"Bearer {key}"} if key else {})})
    if way == "async":
        made: Sender = _Awaited(AsyncHttp(endpoint, timeouts, verify, connections))
    else:
        made = _Threaded(Http(endpoint, timeouts, verify, connections))
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
