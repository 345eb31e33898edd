"""An end to what a client may send, and to how long it may take: httptools knows no limit to a URL, a header or their
number.

A request's head must come within `patience_seconds` of its first byte, and its body must bring `MIN_BODY_BYTES` in any
such stretch until it ends. Who has been answered may ask again within `keep_alive_seconds`.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from tideq.api.problems import HeadTooLarge, RequestError, RequestTooSlow

MAX_HEAD_BYTES = 65_536
MIN_BODY_BYTES = 16_384
PATIENCE_SECONDS = 20.0


class Bounded(asyncio.Protocol, ABC):
    """`Quiet` are bytes of which the parser has said nothing yet: an unfinished header, trailer or chunk extension."""

    patience_seconds = PATIENCE_SECONDS
    keep_alive_seconds = 75.0
    is_read_paused = False
    _quiet_bytes = 0
    _header_bytes = 0
    """Of the URL, headers and trailers."""
    _body_bytes = 0
    """Since somebody last looked."""
    _is_body = False
    _unfinished_since: float | None = None
    """When the client began to send what has not ended yet, or was last seen to get on with it."""
    _idle_since: float | None = None
    """When it was answered, if it has asked nothing since."""
    _is_warned = False
    _watch: asyncio.TimerHandle | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.transport: Any = None

    @abstractmethod
    def refuse(self, error: RequestError) -> None:
        """Tell it, if an answer has not begun, and end the connection."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._unfinished_since = self.loop.time()
        self._watch = self.loop.call_later(self.patience_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def data_received(self, data: bytes) -> None:
        """Before the parser is fed."""
        self._quiet_bytes += len(data)
        self._begin()

    def check_size(self) -> None:
        """After it."""
        if max(self._quiet_bytes, self._header_bytes) > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.refuse(_too_large())

    def on_message_begin(self) -> None:
        self._quiet_bytes = self._header_bytes = self._body_bytes = 0
        self._is_body = False
        self._begin()

    def on_headers_complete(self) -> None:
        """Raising inside the parser ends the request."""
        self._is_body = True
        if self._header_bytes > MAX_HEAD_BYTES:
            raise _too_large()

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        self._unfinished_since, self._is_body = None, False

    def rest(self) -> None:
        """Everything asked has been answered."""
        self._idle_since = self.loop.time()

    def _begin(self) -> None:
        if self._unfinished_since is None:
            self._unfinished_since, self._idle_since = self.loop.time(), None

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
        self._watch = self.loop.call_later(min(left, self.patience_seconds), self._look)

    def _seconds_left(self) -> float:
        """A body may take its time if it comes at all, and anything may while it is us who do not read it."""
        now = self.loop.time()
        if self._unfinished_since is not None:
            if self.is_read_paused or (self._is_body and self._body_bytes >= MIN_BODY_BYTES):
                self._unfinished_since, self._body_bytes = now, 0
            return self._unfinished_since + self.patience_seconds - now
        if self._idle_since is not None:
            return self._idle_since + self.keep_alive_seconds - now
        return self.patience_seconds

    def _dismiss(self) -> None:
        """Whoever has not said anything is not told anything either: browsers connect in advance."""
        if self._unfinished_since is not None and (self._quiet_bytes or self._header_bytes):
            self.refuse(RequestTooSlow(f"a request must not dawdle for {self.patience_seconds:g} seconds"))
        else:
            self.transport.close()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"a request's head has at most {MAX_HEAD_BYTES} bytes")
