"""A proxy before the service that fails in chosen ways: each request takes the next fault from a list, then none.

Unlike the TCP proxy of the API's tests it knows requests from each other, keeps them, and can answer by itself.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.api.proxy import NO_FAREWELL


@dataclass(frozen=True)
class Fault:
    """Without a status, the request is carried out and its answer lost."""

    status: int = 0
    headers: tuple[str, ...] = ()
    body: bytes = b""
    is_done: bool = False
    """With a status: answered so, although it was carried out."""


LOST_ANSWER = Fault()


@dataclass(frozen=True)
class Seen:
    head: str
    body: bytes

    def header(self, name: str) -> str | None:
        lines = (line.partition(": ") for line in self.head.split("\r\n"))
        return next((value for found, _, value in lines if found.lower() == name.lower()), None)


@dataclass
class FaultyProxy:
    target: str
    faults: list[Fault | None] = field(default_factory=list["Fault | None"])
    """None lets one request pass."""
    seen: list[Seen] = field(default_factory=list[Seen])
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection."""
        try:
            if (request := await _request(reader)) is not None:
                self.seen.append(request)
                await self._answer(request, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, request: Seen, writer: asyncio.StreamWriter) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            writer.write(await self._forward(request))
            await writer.drain()
            return
        if not fault.status or fault.is_done:
            await self._forward(request)
        if fault.status:
            writer.write(_written(fault))
            await writer.drain()
        else:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
            writer.transport.abort()

    async def _forward(self, request: Seen) -> bytes:
        place = urlsplit(self.target)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        lines = [line for line in request.head.split("\r\n") if not line.lower().startswith("connection:")]
        writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode() + request.body)
        answer = await reader.read()
        writer.close()
        return answer


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().removesuffix("\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = Seen(head, b"").header("Content-Length")
    return Seen(head, await reader.readexactly(int(length)) if length else b"")


def _written(fault: Fault) -> bytes:
    lines = [
        f"HTTP/1.1 {fault.status} Fault",
        *fault.headers,
        f"Content-Length: {len(fault.body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + fault.body


@contextlib.asynccontextmanager
async def faulty(target: str, faults: Sequence[Fault] = ()) -> AsyncGenerator[FaultyProxy]:
    proxy = FaultyProxy(target, list(faults))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
