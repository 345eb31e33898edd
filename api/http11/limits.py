"""An end to what a client may send, and to how long it may take: httptools knows no limit to a URL, a header or their
number.

A request's head must come within `patience_seconds` of its first byte, and its body must bring `MIN_BODY_BYTES` in any
such stretch until it ends. Who has been answered may ask again within `keep_alive_seconds`. An answer must be read just
as steadily: a client that takes less than `MIN_TAKEN_BYTES` of it in such a stretch loses the connection.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any

import structlog

from tideq.api.edge.problems import HeadTooLarge, RequestError, RequestTooSlow

MAX_HEAD_BYTES = 65_536
MIN_BODY_BYTES = 16_384
MIN_TAKEN_BYTES = MIN_BODY_BYTES
READ_TIMEOUT_SECONDS = 20.0

log = structlog.get_logger(__name__)


class LimitedProtocol(asyncio.Protocol, ABC):
    """`Quiet` are bytes of which the parser has said nothing yet: an unfinished header, trailer or chunk extension."""

    patience_seconds = READ_TIMEOUT_SECONDS
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
    _untaken_since: float | None = None
    """When the client stopped taking what is sent to it, or was last seen to take some; None while nothing is left."""
    _untaken_bytes = 0
    """How much was left then."""
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
        # Every byte that is not taken counts, not only those above some mark.
        transport.set_write_buffer_limits(high=0)
        self._unfinished_since = self.loop.time()
        self._watch = self.loop.call_later(self.patience_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()

    def pause_writing(self) -> None:
        self._untaken_since, self._untaken_bytes = self.loop.time(), self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._untaken_since = None

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

    def may_ask_within(self, seconds: float) -> bool:
        """Whether it has been without a request, or in the middle of one, for less than that."""
        since = self._unfinished_since if self._idle_since is None else self._idle_since
        return since is not None and self.loop.time() - since < seconds

    def _begin(self) -> None:
        if self._unfinished_since is None:
            self._unfinished_since, self._idle_since = self.loop.time(), None

    def _look(self) -> None:
        """One timer a connection, set anew when it has rung: a request costs a look at the clock."""
        if self.transport.is_closing() and self._untaken_since is None:
            return
        left = self._seconds_left()
        if left > 0:
            self._is_warned = False
        elif self._is_warned:
            self._is_warned, left = False, self.patience_seconds
            self._dismiss()
        else:
            # Timers ring before sockets are read: what came while this process was held up is not the client's delay.
            self._is_warned, left = True, self.patience_seconds / 10
        self._watch = self.loop.call_later(min(left, self.patience_seconds), self._look)

    def _seconds_left(self) -> float:
        to_take = self._seconds_to_take()
        return to_take if self.transport.is_closing() else min(to_take, self._seconds_to_send())

    def _seconds_to_take(self) -> float:
        """An answer may take its time as long as it is read."""
        if self._untaken_since is None:
            return self.patience_seconds
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if left <= self._untaken_bytes - MIN_TAKEN_BYTES:
            self._untaken_since, self._untaken_bytes = now, left
        return self._untaken_since + self.patience_seconds - now

    def _seconds_to_send(self) -> float:
        """A body may take its time if it comes at all, and anything may while it is us who do not read it."""
        now = self.loop.time()
        if self._unfinished_since is not None:
            if self.is_read_paused or (self._is_body and self._body_bytes >= MIN_BODY_BYTES):
                self._unfinished_since, self._body_bytes = now, 0
            return self._unfinished_since + self.patience_seconds - now
        if self._idle_since is not None:
            if self._untaken_since is not None:
                self._idle_since = now  # it still reads
            return self._idle_since + self.keep_alive_seconds - now
        return self.patience_seconds

    def _dismiss(self) -> None:
        """Whoever has not said anything is not told anything either: browsers connect in advance."""
        if self._seconds_to_take() <= 0:
            log.info("unread answer given up", seconds=self.patience_seconds, unread_bytes=self._untaken_bytes)
            self.transport.abort()
        elif self._unfinished_since is not None and (self._quiet_bytes or self._header_bytes):
            self._unfinished_since = None
            self.refuse(RequestTooSlow(f"a request must not dawdle for {self.patience_seconds:g} seconds"))
        else:
            self.transport.close()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(f"a request's head has at most {MAX_HEAD_BYTES} bytes")
