"""One connection of code that runs in an asyncio loop: a request is sent, and its answer awaited.

It does not connect by itself, and does not know for how long it is kept.
"""

import asyncio
from typing import cast

from tideq.client.http.answers import Response, ResponseParser
from tideq.client.http.exchange_failures import ExchangeFailed, Lost, Stale
from tideq.client.http.readable import is_readable
from tideq.client.http.timeouts import Timeouts


class AsyncConnection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_reusable = False
        self.moved_at = 0.0
        """When something was last sent or received."""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._answer: asyncio.Future[Response] | None = None
        self._is_kept = False
        self._is_sending = False
        self._unsent_bytes = 0
        self._timeouts = Timeouts()
        self._watch: asyncio.TimerHandle | None = None

    def ask(self, message: bytes, timeouts: Timeouts) -> "asyncio.Future[Response]":
        self._is_kept, self.is_reusable = self.is_reusable, False
        self._parser, self._timeouts = ResponseParser(), timeouts
        self._answer = self._loop.create_future()
        self.moved_at = self._loop.time()
        if self._transport is None:
            self._fail(Lost("the connection ended before the request"))
        else:
            self._transport.write(message)
            self._watch_from(self.moved_at + min(timeouts.read, timeouts.write))
        return self._answer

    @property
    def has_ended(self) -> bool:
        """Perhaps unknown to the loop, which may have been busy."""
        return self._transport is None or is_readable(self._transport.get_extra_info("socket").fileno())

    def abort(self) -> None:
        """An answer that would end with its connection is not whole because this side ends it."""
        self.is_reusable = False
        self._fail(Lost("the connection was broken off"))
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by descent
        self._transport.set_write_buffer_limits(high=0)  # so that the last byte's leaving is told

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # nobody asked
            self.abort()
            return
        self.moved_at = self._loop.time()
        try:
            if self._parser.feed(data):
                self._done()
        except ExchangeFailed as error:
            self._fail(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self.is_reusable = None, False
        if self._answer is None or self._answer.done():
            return
        try:
            if exc is None and self._parser.end():
                self._done()
                return
        except ExchangeFailed as error:
            self._fail(error)
            return
        kind = Stale if self._is_kept and not self._parser.has_begun else Lost
        failure = kind(f"the connection ended before the answer{f': {exc}' if exc else ''}")
        failure.__cause__ = exc
        self._fail(failure)

    def pause_writing(self) -> None:
        self._is_sending = True

    def resume_writing(self) -> None:
        self._is_sending, self._unsent_bytes, self.moved_at = False, 0, self._loop.time()

    def _done(self) -> None:
        if self._answer is not None and self._parser.answer is not None:
            self.is_reusable = not (self._parser.is_last or self._is_sending or self._transport is None)
            self._answer.set_result(self._parser.answer)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _watch_from(self, instant: float) -> None:
        """One timer for many requests: it looks at what is under way when it goes off."""
        if self._watch is not None:
            if self._watch.when() <= instant:
                return
            self._watch.cancel()
        self._watch = self._loop.call_at(instant, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._transport is None or self._answer is None or self._answer.done():
            return
        if self._is_sending and (unsent := self._transport.get_write_buffer_size()) != self._unsent_bytes:
            self._unsent_bytes, self.moved_at = unsent, self._loop.time()
        seconds = self._timeouts.write if self._is_sending else self._timeouts.read
        if self._loop.time() < self.moved_at + seconds:
            self._watch_from(self.moved_at + seconds)
            return
        self._fail(Lost(f"it did not {'take the request' if self._is_sending else 'answer'} within {seconds:g} s"))
        self.abort()
