"""A TCP proxy that can hold answers back, bring them late, or reset connections at a chosen moment."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from urllib.parse import urlsplit

CHUNK = 65_536
NO_FAREWELL = struct.pack("ii", 1, 0)


def reset(connection: socket.socket) -> None:
    """Close so that the other side gets an RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
    connection.close()


class Proxy:
    """`resets_after` is asked about each request, `resets_before` about each answer: True resets both sides then."""

    def __init__(self, url: str) -> None:
        self.port = 0
        self.reset_count = 0
        self.delay_seconds = 0.0
        """How late answers come."""
        self.resets_after: Callable[[bytes], bool] = lambda _: False
        self.resets_before: Callable[[bytes], bool] = lambda _: False
        self._target = urlsplit(url)
        self._may_answer = asyncio.Event()
        self._may_answer.set()
        self._serving: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    def lead_to(self, url: str) -> None:
        """From now on, and for those who are connected too: they have to come again."""
        self._target = urlsplit(url)
        self.reset_all()

    def lead_newcomers_to(self, url: str) -> None:
        """From now on; who is connected stays where it is."""
        self._target = urlsplit(url)

    def hold_answers(self) -> None:
        self._may_answer.clear()

    def release_answers(self) -> None:
        self._may_answer.set()

    def reset_all(self) -> None:
        for writer in list(self._open):
            self.reset_count += 1
            _break_off(writer)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_reset = False
        try:
            upstream_reader, upstream_writer = await self._connect()
        except OSError:
            return await _end(writer, True)
        self._open |= {writer, upstream_writer}
        try:
            ways = (self._pass_requests(reader, upstream_writer), self._pass_answers(upstream_reader, writer))
            is_reset = await _first(*map(asyncio.ensure_future, ways))
        finally:
            self.reset_count += is_reset
            self._open -= {writer, upstream_writer}
            for each in (writer, upstream_writer):
                await _end(each, is_reset)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._target.scheme == "unix":
            return await asyncio.open_unix_connection(self._target.path)
        return await asyncio.open_connection(self._target.hostname, self._target.port)

    async def _pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                writer.write(data)
                if self.resets_after(data):
                    return True
        return False

    async def _pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._may_answer.wait()
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if self.resets_before(data):
                    return True
                writer.write(data)
        return False


async def _first(*ways: asyncio.Future[bool]) -> bool:
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        return any(way.result() for way in done)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


def _break_off(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_FAREWELL)
        writer.transport.abort()


async def _end(writer: asyncio.StreamWriter, is_reset: bool) -> None:
    if is_reset:
        _break_off(writer)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@contextlib.asynccontextmanager
async def proxying(url: str) -> AsyncGenerator[Proxy]:
    """A proxy before the server at this address."""
    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
