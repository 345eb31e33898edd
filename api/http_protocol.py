"""HTTP/1.1 as httptools reads it, with an end to what it reads: it knows no limit to a URL, a header or their number.

Nor to how long a client may take. Here a request's head must come within `patience_seconds` of its first byte, and its
body must bring `MIN_BODY_BYTES` in any such stretch until it ends. What is no HTTP at all, whose head does not end or
who dawdles is refused with a problem document like any other.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tideq.api.one_write import InOneWrite
from tideq.api.problems import MEDIA_TYPE, BadRequest, HeadTooLarge, RequestError, RequestTooSlow, problem_of

MAX_HEAD_BYTES = 65_536
MIN_BODY_BYTES = 16_384
PATIENCE_SECONDS = 20.0


class BoundedProtocol(HttpToolsProtocol):
    """`Quiet` are bytes of which the parser has said nothing yet: an unfinished header, trailer or chunk extension."""

    patience_seconds = PATIENCE_SECONDS
    _quiet_bytes = 0
    _header_bytes = 0
    _body_bytes = 0
    """Since somebody last looked."""
    _is_body = False
    _unfinished_since: float | None = None
    """When the client began to send what has not ended yet, or was last seen to get on with it."""
    _is_warned = False
    _watch: asyncio.TimerHandle | None = None
    _refusal: RequestError | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._unfinished_since = self.loop.time()
        self._watch = self.loop.call_later(self.patience_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._quiet_bytes += len(data)
        if self._unfinished_since is None:
            self._unfinished_since = self.loop.time()
        super().data_received(data)
        if self._quiet_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refusal = _too_large()
            self.send_400_response("")

    def on_message_begin(self) -> None:
        self._quiet_bytes = self._header_bytes = self._body_bytes = 0
        self._is_body = False
        if self._unfinished_since is None:
            self._unfinished_since = self.loop.time()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_body = True
        super().on_headers_complete()
        cycle: Any = self.cycle
        if cycle is not None and not cycle.waiting_for_100_continue:
            cycle.transport = InOneWrite(self.transport, self.loop)

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        self._unfinished_since, self._is_body = None, False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """An answer that has begun cannot be taken back: then the connection just ends."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(_answer(self._refusal or BadRequest("this is not HTTP/1.1")))
        self.transport.close()

    def _look(self) -> None:
        """One timer a connection, set anew when it has rung: a request costs a look at the clock."""
        if self.transport.is_closing():
            return
        left = self._seconds_left()
        if left > 0:
            self._is_warned = False
        elif self._is_warned:
            self._dismiss()
            return
        else:
            # Timers ring before sockets are read: what came while this process was held up is not the client's delay.
            self._is_warned, left = True, self.patience_seconds / 10
        self._watch = self.loop.call_later(left, self._look)

    def _seconds_left(self) -> float:
        """A body may take its time if it comes at all, and while it is us who do not read it."""
        now = self.loop.time()
        if self._is_body and (self._body_bytes >= MIN_BODY_BYTES or self.flow.read_paused):
            self._unfinished_since, self._body_bytes = now, 0
        since = now if self._unfinished_since is None else self._unfinished_since
        return since + self.patience_seconds - now

    def _dismiss(self) -> None:
        """Whoever has not said anything is not told anything either: browsers connect in advance."""
        if self._quiet_bytes or self._header_bytes:
            self._refusal = RequestTooSlow(f"a request must not dawdle for {self.patience_seconds:g} seconds")
            self.send_400_response("")
        else:
            self.transport.close()

    def _count(self, *parts: bytes) -> None:
        """Trailers count too. Raising inside the parser ends the request."""
        self._quiet_bytes = 0
        self._header_bytes += sum(map(len, parts))
        if self._header_bytes > MAX_HEAD_BYTES:
            self._refusal = _too_large()
            raise self._refusal


def bounded(patience_seconds: float) -> type[BoundedProtocol]:
    return type("BoundedProtocol", (BoundedProtocol,), {"patience_seconds": patience_seconds})


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"a request's head has at most {MAX_HEAD_BYTES} bytes")


def _answer(error: RequestError) -> bytes:
    document, _ = problem_of(error)
    body = msgspec.json.encode(document)
    lines = (
        f"HTTP/1.1 {document.status} {HTTPStatus(document.status).phrase}",
        f"content-type: {MEDIA_TYPE}",
        f"content-length: {len(body)}",
        "connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body
