"""Limits on the size and duration of a request: httptools has none for a URL, a header or the number of headers.

A request's head must arrive within `read_timeout_seconds` of its first byte, and its body must bring `MIN_BODY_BYTES`
in each such period. An idle connection is kept for `keep_alive_seconds`. A client that reads less than
`MIN_SENT_BYTES` of a response in such a period loses the connection.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Any

import structlog

MAX_HEAD_BYTES = 65_536
MIN_BODY_BYTES = 16_384
MIN_SENT_BYTES = MIN_BODY_BYTES

log = structlog.get_logger(__name__)


class RefusedRequest(Exception):
    """A request that no application receives."""

    def __init__(self, detail: str, status: int = 400) -> None:
        super().__init__(detail)
        self.status = status


class LimitedProtocol(asyncio.Protocol, ABC):
    """`_unparsed_bytes` have produced no parser callback yet: an unfinished header, trailer or chunk extension."""

    read_timeout_seconds = 20.0
    keep_alive_seconds = 75.0
    is_read_paused = False
    _unparsed_bytes = 0
    _header_bytes = 0
    """Of the URL, headers and trailers."""
    _body_bytes = 0
    """Since the last check."""
    _is_body = False
    _unfinished_since: float | None = None
    """When the unfinished request began, or last made progress."""
    _idle_since: float | None = None
    """When the last response ended, if no request followed."""
    _unsent_since: float | None = None
    """When the write buffer got its first byte, or last shrank; None while it is empty."""
    _unsent_bytes = 0
    """Bytes in the write buffer at that time."""
    _is_warned = False
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.transport: Any = None

    @abstractmethod
    def refuse(self, error: RefusedRequest) -> None:
        """Sends the error, unless a response has begun, and ends the connection."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        # `pause_writing` must be called from the first byte that stays in the buffer.
        transport.set_write_buffer_limits(high=0)
        self._unfinished_since = self.loop.time()
        self._timer = self.loop.call_later(self.read_timeout_seconds, self._check_time)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        self._unsent_since, self._unsent_bytes = self.loop.time(), self.transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._unsent_since = None

    def data_received(self, data: bytes) -> None:
        """To be called before the parser is fed."""
        self._unparsed_bytes += len(data)
        self._mark_unfinished()

    def check_size(self) -> None:
        """To be called after the parser was fed."""
        if max(self._unparsed_bytes, self._header_bytes) > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.refuse(_too_large())

    def on_message_begin(self) -> None:
        self._unparsed_bytes = self._header_bytes = self._body_bytes = 0
        self._is_body = False
        self._mark_unfinished()

    def on_headers_complete(self) -> None:
        """Raising inside this parser callback ends the request."""
        self._is_body = True
        if self._header_bytes > MAX_HEAD_BYTES:
            raise _too_large()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        self._unfinished_since, self._is_body = None, False

    def mark_idle(self) -> None:
        """Starts the keep-alive time: all requests have been answered."""
        self._idle_since = self.loop.time()

    def was_active_within(self, seconds: float) -> bool:
        """Whether the connection became idle, or its unfinished request began, less than `seconds` ago."""
        since = self._unfinished_since if self._idle_since is None else self._idle_since
        return since is not None and self.loop.time() - since < seconds

    def _mark_unfinished(self) -> None:
        if self._unfinished_since is None:
            self._unfinished_since, self._idle_since = self.loop.time(), None

    def _check_time(self) -> None:
        """One timer per connection, restarted only when it fires: a request costs one read of the clock."""
        if self.transport.is_closing() and self._unsent_since is None:
            return
        left = self._seconds_left()
        if left > 0:
            self._is_warned = False
        elif self._is_warned:
            self._is_warned, left = False, self.read_timeout_seconds
            self._give_up()
        else:
            # Timers fire before sockets are read: data that arrived while this process was blocked must count first.
            self._is_warned, left = True, self.read_timeout_seconds / 10
        self._timer = self.loop.call_later(min(left, self.read_timeout_seconds), self._check_time)

    def _seconds_left(self) -> float:
        to_take = self._answer_seconds_left()
        return to_take if self.transport.is_closing() else min(to_take, self._request_seconds_left())

    def _answer_seconds_left(self) -> float:
        """A response may take long as long as the client keeps reading."""
        if self._unsent_since is None:
            return self.read_timeout_seconds
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if left <= self._unsent_bytes - MIN_SENT_BYTES:
            self._unsent_since, self._unsent_bytes = now, left
        return self._unsent_since + self.read_timeout_seconds - now

    def _request_seconds_left(self) -> float:
        """A body may take long as long as it keeps arriving, and a request while we have paused reading."""
        now = self.loop.time()
        if self._unfinished_since is not None:
            if self.is_read_paused or (self._is_body and self._body_bytes >= MIN_BODY_BYTES):
                self._unfinished_since, self._body_bytes = now, 0
            return self._unfinished_since + self.read_timeout_seconds - now
        if self._idle_since is not None:
            if self._unsent_since is not None:
                self._idle_since = now  # the client is still reading
            return self._idle_since + self.keep_alive_seconds - now
        return self.read_timeout_seconds

    def _give_up(self) -> None:
        """A connection without a byte of a request is closed without a response: browsers connect in advance."""
        if self._answer_seconds_left() <= 0:
            log.info("unread response aborted", seconds=self.read_timeout_seconds, unread_bytes=self._unsent_bytes)
            self.transport.abort()
        elif self._unfinished_since is not None and (self._unparsed_bytes or self._header_bytes):
            self._unfinished_since = None
            detail = f"the request was not received within {self.read_timeout_seconds:g} seconds"
            self.refuse(RefusedRequest(detail, 408))
        else:
            self.transport.close()


def _too_large() -> RefusedRequest:
    return RefusedRequest(
        f"the request's head is larger than {MAX_HEAD_BYTES} bytes; send fewer or shorter headers", 431
    )
