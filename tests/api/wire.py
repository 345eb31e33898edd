"""HTTP/1.1 byte by byte: an application whose part the test plays, and callers that write what they like.

The protocol is served on a real port, or `by hand`: on a line and a clock of the test's, to see what waiting does
without waiting.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from tideq.api.edge.problems import protocol_refusal
from tideq.api.http11.connection import HttpConnection, protocol_with
from tideq.api.server import listen

RawHeaders = Iterable[tuple[bytes, bytes]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
PATIENCE_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 60.0
TURNS = 10
"""Of the loop: more than anything here takes from a cause to its effect."""


class Call:
    """One request as the application sees it."""

    def __init__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.scope["headers"])

    async def body(self) -> bytes:
        parts = list[bytes]()
        while True:
            message = await self.receive()
            assert message["type"] == "http.request"
            parts.append(message["body"])
            if not message["more_body"]:
                return b"".join(parts)

    async def begin(self, status: int = 200, headers: RawHeaders = ()) -> None:
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def go_on(self, body: bytes = b"", *, more: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})

    async def answer(self, body: bytes = b"", status: int = 200) -> None:
        await self.begin(status, [(b"content-length", b"%d" % len(body))])
        await self.go_on(body, more=False)
        self.end()

    def end(self) -> None:
        self.over.set_result(None)

    def fail(self, error: Exception) -> None:
        self.over.set_exception(error)


class Desk:
    """The application: every request is a call that the test takes, and ends."""

    def __init__(self) -> None:
        self._calls = asyncio.Queue[Call]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        call = Call(scope, receive, send)
        self._calls.put_nowait(call)
        await call.over

    async def call(self) -> Call:
        return await self._calls.get()

    async def is_left_alone(self) -> bool:
        await turns()
        return self._calls.empty()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self, *, has_body: bool = True) -> Answer:
        first, *lines = (await self.head()).splitlines()[:-1]
        headers = dict(_parted(line) for line in lines)
        body = await self._body(headers) if has_body else b""
        return Answer(int(first.split()[1]), headers, body)

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Until the other side ends the connection."""
        heard = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(65_536):
                heard += part
        return heard

    async def leave(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _body(self, headers: dict[bytes, bytes]) -> bytes:
        if b"transfer-encoding" not in headers:
            return await self.reader.readexactly(int(headers.get(b"content-length", b"0")))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readline() == b"\r\n"
        assert await self.reader.readline() == b"\r\n"
        return body


def _parted(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b": ")
    return name, value


class Wire:
    """An application on a port."""

    def __init__(self, port: int, state: ServerState) -> None:
        self.port = port
        self.state = state
        self._callers: list[Caller] = []

    async def caller(self) -> Caller:
        caller = Caller(*await asyncio.open_connection("127.0.0.1", self.port))
        self._callers.append(caller)
        return caller

    @property
    def connection(self) -> HttpConnection:
        """The only one."""
        (connection,) = self.state.connections
        assert isinstance(connection, HttpConnection)
        return connection

    async def close(self) -> None:
        for caller in self._callers:
            await caller.leave()
        await end_tasks(self.state)
        await until(lambda: not self.state.connections)


@contextlib.asynccontextmanager
async def wired(app: Application) -> AsyncGenerator[Wire]:
    config, state = configured(app), ServerState()
    protocol = protocol_with(protocol_refusal, PATIENCE_SECONDS, KEEP_ALIVE_SECONDS)
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: protocol(config, state, {}), sock=listener)
        wire = Wire(listener.getsockname()[1], state)
        try:
            yield wire
        finally:
            server.close()
            await wire.close()


def configured(app: Application) -> uvicorn.Config:
    config = uvicorn.Config(app, log_config=None, lifespan="off", proxy_headers=False, ws="none")
    config.load()
    return config


class Time:
    """A loop whose clock and timers are moved by hand; the rest is the real one's."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.create_task = asyncio.get_running_loop().create_task
        self.call_soon = asyncio.get_running_loop().call_soon

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> "Time":
        self._due.append((self.now + seconds, call))
        return self

    def cancel(self) -> None:
        self._due.clear()

    @property
    def is_still(self) -> bool:
        return not self._due

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [each for each in self._due if each[0] <= end]:
            first = min(due, key=lambda each: each[0])
            self._due.remove(first)
            self.now = first[0]
            first[1]()
        self.now = end


class Line:
    """As much of a transport as the protocol asks about."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_read = True
        self.is_aborted = False
        self.writes: list[bytes] = []
        self.untaken_bytes = 0
        """What is written and not taken by the other side."""

    @property
    def said(self) -> bytes:
        return b"".join(self.writes)

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self.is_closed

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "nobody hears what is said after the end"
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def set_write_buffer_limits(self, *, high: int) -> None:
        assert high == 0

    def get_write_buffer_size(self) -> int:
        return self.untaken_bytes

    def pause_reading(self) -> None:
        assert self.is_read, "told twice"
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read, "told twice"
        self.is_read = True


class ByHand:
    """A connection on a line and a clock of the test's."""

    def __init__(self, protocol: Callable[..., Any] | None = None) -> None:
        self.time, self.line, self.desk, self.state = Time(), Line(), Desk(), ServerState()
        made, loop = (
            protocol or protocol_with(protocol_refusal, PATIENCE_SECONDS, KEEP_ALIVE_SECONDS),
            _taken_for_a_loop(self.time),
        )
        self.protocol: Any = made(configured(self.desk), self.state, {}, _loop=loop)
        self.protocol.connection_made(self.line)

    def send(self, data: bytes) -> None:
        """While it is read."""
        assert self.line.is_read
        self.protocol.data_received(data)

    async def close(self) -> None:
        self.protocol.connection_lost(None)
        await end_tasks(self.state)


def _taken_for_a_loop(time: Time) -> Any:
    return time


async def end_tasks(state: ServerState) -> None:
    tasks = list(state.tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def turns(count: int = TURNS) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0)
