"""One request and its answer, as ASGI wants them.

An answer's head and what follows it at once leave in one write. The first of two would wake the caller, which on a
machine with few cores takes the server's place there, finds half an answer and goes back to sleep, before the server
gets to the second.
"""

import asyncio
import functools
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol

import structlog
from uvicorn.server import ServerState

from tideq.api.edge.disconnect import ClientDisconnected
from tideq.api.hot_path import HotPath, RawHeaders

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
HAVE_NO_BODY = (204, 304)
NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
FAILED: tuple[dict[str, Any], ...] = (
    {
        "type": "http.response.start",
        "status": 500,
        "headers": [(b"content-type", b"text/plain"), (b"content-length", b"21"), (b"connection", b"close")],
    },
    {"type": "http.response.body", "body": b"Internal Server Error"},
)

log = structlog.get_logger(__name__)


class Connection(Protocol):
    """As much of a connection as an exchange asks for."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    server_state: ServerState

    @property
    def is_full(self) -> bool: ...
    async def drain(self) -> None: ...
    def resume_reading(self) -> None: ...
    def see_it_leave(self) -> None: ...
    def answered(self) -> None: ...


class RequestCycle:
    def __init__(self, carrier: Connection, scope: dict[str, Any], *, keeps_alive: bool, expects_word: bool) -> None:
        self.keeps_alive = keeps_alive
        """Whether the connection may be used again."""
        self._expects_word = expects_word
        """The client sends the body when it is told to."""
        self.has_begun = False
        """To be answered."""
        self.is_answered = False
        self._is_gone = False
        """Nobody is there to be answered."""
        self._carrier = carrier
        self._scope = scope
        self._parts: list[bytes] = []
        """Of the body, as they came and nobody has read them."""
        self._unread_bytes = 0
        self.is_whole = False
        """The request is there, with all its body."""
        self.is_watched = False
        """Somebody waits for nothing but the caller's leaving."""
        self._has_news = False
        self._news: asyncio.Event | None = None
        """Made when somebody has to wait for them."""
        self._head: bytes | None = None
        """Until it is sent."""
        self._is_chunked = False
        self._missing_bytes: int | None = 0
        """Of the length that was told; None where the end of the connection is the end of the answer."""

    def feed(self, data: bytes) -> int:
        """How much is unread, of what somebody may still read."""
        if self.is_answered:
            return 0
        self._parts.append(data)
        self._unread_bytes += len(data)
        self._tell()
        return self._unread_bytes

    def end_body(self) -> None:
        self.is_whole = True
        self._tell()

    def disconnect(self) -> None:
        self._is_gone = True
        self._tell()

    async def run(self, app: Any, express: HotPath | None) -> None:
        """By the short way, where there is one for it."""
        found = express.find(self._scope) if express else None
        try:
            if express and found:
                await express.answer(self._scope, found, self)
            else:
                await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._carrier.transport.close()
            raise
        except Exception as error:
            # Whatever it is, whoever waits for an answer must not wait for ever.
            log.error("unforeseen", path=self._scope["path"], exc_info=error)
            await self._fail()
        if not self.is_answered and not self._is_gone and not self._carrier.transport.is_closing():
            log.error("left unanswered", path=self._scope["path"])
            await self._fail()

    async def receive(self) -> dict[str, Any]:
        if not self._is_gone and not self.is_answered:
            self._ask_for_more()
            if self.is_whole and not self._has_news:
                self._carrier.see_it_leave()
            if not self._has_news:
                await self._wait()
        if self._is_gone or self.is_answered:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": not self.is_whole}

    async def body(self) -> bytes:
        """The whole of it, of which nothing has been received yet."""
        while not self.is_whole and not self._is_gone:
            self._ask_for_more()
            await self._wait()
        if self._is_gone:
            raise ClientDisconnected
        return self._take()

    async def send(self, message: Any) -> None:
        if self._carrier.is_full:
            await self._carrier.drain()
        if self._is_gone:
            return
        if not self.has_begun:
            self._begin(message["status"], message.get("headers", ()))
            # A stream's first part may be long in coming, and its reader waits for the head.
            self._carrier.loop.call_soon(self._flush)
        elif not self.is_answered:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError("the answer is complete, and cannot go on")

    async def respond(self, status: int, headers: RawHeaders, content: bytes) -> None:
        """All of an answer, which has a length."""
        if self._carrier.is_full:
            await self._carrier.drain()
        if not self._is_gone:
            self._begin(status, headers)
            self._go_on(content, is_last=True)

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines, told = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status], dict[bytes, bytes]()
        for name, value in (*self._carrier.server_state.default_headers, *headers):
            lines.append(_line(name, value))
            told[name.lower()] = value
        if told.get(b"connection") == b"close":
            self.keeps_alive = False
        elif not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        if b"content-length" in told:
            self._missing_bytes = int(told[b"content-length"])
        elif self._scope["http_version"] == "1.0":
            self._missing_bytes = None
        elif status not in HAVE_NO_BODY and self._scope["method"] != "HEAD":
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        self.has_begun = True

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
        elif self._scope["method"] == "HEAD":
            body, self._missing_bytes = b"", 0
        elif self._missing_bytes is not None:
            self._missing_bytes -= len(body)
            if self._missing_bytes < 0 or (is_last and self._missing_bytes):
                raise RuntimeError("the answer is not as long as its head says")
        if self._head is not None:
            head, self._head = self._head, None
            self._carrier.transport.write(head + body)
        elif body:
            self._carrier.transport.write(body)
        if is_last:
            self._end()

    def _flush(self) -> None:
        if self._head is not None and not self._is_gone:
            head, self._head = self._head, None
            self._carrier.transport.write(head)

    def _end(self) -> None:
        self.is_answered = True
        self._tell()
        if not self.keeps_alive:
            self._carrier.transport.close()
        self._carrier.answered()

    async def _fail(self) -> None:
        """What has begun and does not end is broken off, so that nobody takes it for whole."""
        if self.is_answered or self._is_gone:
            return
        if self.has_begun:
            self._flush()
            self._carrier.transport.close()
        else:
            for message in FAILED:
                await self.send(message)

    def _ask_for_more(self) -> None:
        self._carrier.resume_reading()
        if self._expects_word and not self.has_begun:
            self._expects_word = False
            self._carrier.transport.write(CONTINUE)

    def _take(self) -> bytes:
        parts, self._parts, self._unread_bytes, self._has_news = self._parts, [], 0, False
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _tell(self) -> None:
        self._has_news = True
        if self._news is not None:
            self._news.set()

    async def _wait(self) -> None:
        if self._news is None:
            self._news = asyncio.Event()
        self._news.clear()
        self.is_watched = self.is_whole
        try:
            await self._news.wait()
        finally:
            self.is_watched = False


@functools.lru_cache(maxsize=1_024)
def _line(name: bytes, value: bytes) -> bytes:
    """Most headers are those of the answer before."""
    if not NAME.fullmatch(name) or not VALUE.fullmatch(value):
        raise ValueError(f"{name!r}: {value!r} is no header")
    return b"%b: %b\r\n" % (name, value)
