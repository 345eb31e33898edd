"""One request and its response, in ASGI's terms.

A response's head and the body that follows at once leave in one write. The first of two writes would wake the client,
which on a machine with few cores displaces the server, finds half a response and sleeps again.
"""

import asyncio
import functools
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol

import structlog
from uvicorn.server import ServerState

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
    """The part of a connection that a request cycle uses."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    server_state: ServerState

    @property
    def is_full(self) -> bool: ...
    async def drain(self) -> None: ...
    def resume_reading(self) -> None: ...
    def watch_disconnect(self) -> None: ...
    def on_answered(self) -> None: ...


class RequestCycle:
    def __init__(
        self, connection: Connection, scope: dict[str, Any], *, keeps_alive: bool, expects_continue: bool
    ) -> None:
        self.keeps_alive = keeps_alive
        """Whether the connection may serve another request."""
        self._expects_continue = expects_continue
        """The client waits for `100 Continue` before it sends the body."""
        self.has_begun = False
        """The response has begun."""
        self.is_answered = False
        self._is_disconnected = False
        self._connection = connection
        self._scope = scope
        self._parts: list[bytes] = []
        """Received parts of the body that the application has not read."""
        self._unread_bytes = 0
        self.is_whole = False
        """The request has been received with all its body."""
        self.is_watched = False
        """The application waits for the disconnect only."""
        self._has_changed = False
        self._change: asyncio.Event | None = None
        """Made when the application has to wait."""
        self._head: bytes | None = None
        """Until it is sent."""
        self._is_chunked = False
        self._missing_bytes: int | None = 0
        """Of the Content-Length; None where the end of the connection ends the response."""

    def feed(self, data: bytes) -> int:
        """How many bytes of the body the application has still to read."""
        if self.is_answered:
            return 0
        self._parts.append(data)
        self._unread_bytes += len(data)
        self._notify()
        return self._unread_bytes

    def end_body(self) -> None:
        self.is_whole = True
        self._notify()

    def disconnect(self) -> None:
        self._is_disconnected = True
        self._notify()

    async def run(self, app: Any) -> None:
        try:
            await app(self._scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._connection.transport.close()
            raise
        except Exception as error:
            # Any error: a client must never wait for a response that does not come.
            log.error("request failed", path=self._scope["path"], exc_info=error)
            await self._fail()
        if not self.is_answered and not self._is_disconnected and not self._connection.transport.is_closing():
            log.error("response missing", path=self._scope["path"])
            await self._fail()

    async def receive(self) -> dict[str, Any]:
        if not self._is_disconnected and not self.is_answered:
            self._request_more()
            if self.is_whole and not self._has_changed:
                self._connection.watch_disconnect()
            if not self._has_changed:
                await self._wait()
        if self._is_disconnected or self.is_answered:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": not self.is_whole}

    async def send(self, message: Any) -> None:
        if self._connection.is_full:
            await self._connection.drain()
        if self._is_disconnected:
            return
        if not self.has_begun:
            self._begin(message["status"], message.get("headers", ()))
            # The first part of a stream may take long, and its client waits for the head.
            self._connection.loop.call_soon(self._flush)
        elif not self.is_answered:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise RuntimeError("the response is complete and cannot be continued")

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines, values = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status], dict[bytes, bytes]()
        for name, value in (*self._connection.server_state.default_headers, *headers):
            lines.append(_line(name, value))
            values[name.lower()] = value
        if values.get(b"connection") == b"close":
            self.keeps_alive = False
        elif not self.keeps_alive:
            lines.append(b"connection: close\r\n")
        if b"content-length" in values:
            self._missing_bytes = int(values[b"content-length"])
        elif self._scope["http_version"] == "1.0":
            self._missing_bytes = None
        elif status not in HAVE_NO_BODY and self._scope["method"] != "HEAD":
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        self.has_begun = True

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self._is_chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
        elif self._scope["method"] == "HEAD":
            body, self._missing_bytes = b"", 0
        elif self._missing_bytes is not None:
            self._missing_bytes -= len(body)
            if self._missing_bytes < 0 or (is_last and self._missing_bytes):
                raise RuntimeError("the response's length differs from its Content-Length")
        if self._head is not None:
            head, self._head = self._head, None
            self._connection.transport.write(head + body)
        elif body:
            self._connection.transport.write(body)
        if is_last:
            self._end()

    def _flush(self) -> None:
        if self._head is not None and not self._is_disconnected:
            head, self._head = self._head, None
            self._connection.transport.write(head)

    def _end(self) -> None:
        self.is_answered = True
        self._notify()
        if not self.keeps_alive:
            self._connection.transport.close()
        self._connection.on_answered()

    async def _fail(self) -> None:
        """Closes the connection within a response that has begun, so that the client does not take it for complete."""
        if self.is_answered or self._is_disconnected:
            return
        if self.has_begun:
            self._flush()
            self._connection.transport.close()
        else:
            for message in FAILED:
                await self.send(message)

    def _request_more(self) -> None:
        self._connection.resume_reading()
        if self._expects_continue and not self.has_begun:
            self._expects_continue = False
            self._connection.transport.write(CONTINUE)

    def _take(self) -> bytes:
        parts, self._parts, self._unread_bytes, self._has_changed = self._parts, [], 0, False
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _notify(self) -> None:
        self._has_changed = True
        if self._change is not None:
            self._change.set()

    async def _wait(self) -> None:
        if self._change is None:
            self._change = asyncio.Event()
        self._change.clear()
        self.is_watched = self.is_whole
        try:
            await self._change.wait()
        finally:
            self.is_watched = False


@functools.lru_cache(maxsize=1_024)
def _line(name: bytes, value: bytes) -> bytes:
    """Cached because most responses have the same headers."""
    if not NAME.fullmatch(name) or not VALUE.fullmatch(value):
        raise ValueError(f"{name!r}: {value!r} is not a valid header")
    return b"%b: %b\r\n" % (name, value)
