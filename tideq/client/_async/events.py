"""The stream of transitions; broken connections are restored."""

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING

from tideq.client._async.transport import AsyncTransport
from tideq.client.calls.base import Params
from tideq.client.calls.events import BEGINNING, Event, Message, SseParser, event_in, events
from tideq.client.errors import BadAnswer, NoAnswer, TideqError
from tideq.client.http.exchange import ExchangeFailed
from tideq.client.options import strict
from tideq.client.retrying import RetryState

if TYPE_CHECKING:
    from tideq.client.http.over_aiohttp import AsyncResponseStream


@strict
class AsyncEventStream:
    """An endless iterator of events, complete from `__aenter__` or the first `__anext__` on.

    A broken connection is restored after the last event read, so no event is missed or repeated; where the service no
    longer has the missing events, a `Gap` is returned. Raises when the service stays away for longer than the client's
    retry deadline.
    """

    def __init__(self, transport: AsyncTransport, filters: Params, after: str | None) -> None:
        self._transport = transport
        self._filters = filters
        self._last_id = after
        self._retry_ms = 0
        self._answer: AsyncResponseStream | None = None
        self._parser = SseParser()
        self._ready: deque[Event] = deque()

    async def __aenter__(self) -> "AsyncEventStream":
        if self._answer is None:
            await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncEventStream":
        return self

    async def __anext__(self) -> Event:
        while not self._ready:
            if self._answer is None:
                await self._connect()
            else:
                await self._read_on(self._answer)
        return self._ready.popleft()

    async def aclose(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            await answer.aclose()

    async def _connect(self) -> None:
        attempts = RetryState(self._transport.policy)
        while True:
            try:
                return await self._try_to_connect()
            except TideqError as error:
                delay = attempts.delay(error)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def _try_to_connect(self) -> None:
        """Connects and reads up to the first message, which sets the position of the stream."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        self._answer = answer = await self._transport.open_stream(events(self._filters, headers))
        if not answer.content_type.startswith("text/event-stream"):
            await self.aclose()
            raise BadAnswer(f"{self._transport.connection.url} sent no event stream: it is not a TideQ service")
        self._parser = SseParser()
        try:
            while not self._take(self._parser.feed(await answer.more())):
                pass
        except ExchangeFailed as error:
            await self.aclose()
            raise NoAnswer(f"{self._transport.connection.url} sent no events: {error}") from error
        # No event exists yet, so a restored connection may start at the beginning.
        self._last_id = self._last_id or BEGINNING

    async def _read_on(self, answer: "AsyncResponseStream") -> None:
        try:
            self._take(self._parser.feed(await answer.more()))
        except ExchangeFailed:
            await self.aclose()
            # Spreads reconnections: all listeners of the service lost their connection at once.
            await asyncio.sleep(random.uniform(0, self._retry_ms / 1000))

    def _take(self, messages: list[Message]) -> bool:
        """Queues the events; returns whether there was any message."""
        for message in messages:
            self._last_id = message.last_id or self._last_id
            self._retry_ms = self._retry_ms if message.retry_ms is None else message.retry_ms
            if (event := event_in(message)) is not None:
                self._ready.append(event)
        return bool(messages)
