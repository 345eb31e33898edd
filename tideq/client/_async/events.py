"""Transitions as they happen, over as many connections as it takes."""

import random
from collections import deque
from typing import TYPE_CHECKING

import anyio

from tideq.client._async.transport import AsyncTransport
from tideq.client.calls.base import Params
from tideq.client.calls.events import BEGINNING, EVENTS, SILENCE_SECONDS, event_in
from tideq.client.errors import BadAnswer, NoAnswer, TideqError
from tideq.client.http.failures import ExchangeFailed
from tideq.client.models.events import Event
from tideq.client.options import strict
from tideq.client.retrying import RetryState
from tideq.client.sse import Message, SseParser

if TYPE_CHECKING:
    from tideq.client._async.through_httpx import AsyncLongAnswer


@strict
class AsyncEventStream:
    """An endless iterator of events. What happens once it is entered, or was first asked, is told, whatever breaks.

    A broken connection is made again after the last event that was read, so none is missed and none comes twice; where
    the service no longer has what is missing, a `Gap` says so. It gives up when the service stays away for longer than
    the client's retry deadline.
    """

    def __init__(self, transport: AsyncTransport, wanted: Params, after: str | None) -> None:
        self._transport = transport
        self._wanted = wanted
        self._last_id = after
        self._retry_ms = 0
        self._answer: AsyncLongAnswer | None = None
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
            await anyio.sleep(delay)

    async def _try_to_connect(self) -> None:
        """Up to the first sign of life, which says from where on everything is told."""
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        self._answer = answer = await self._transport.listen(EVENTS, self._wanted, headers, SILENCE_SECONDS)
        if not answer.content_type.startswith("text/event-stream"):
            await self.aclose()
            raise BadAnswer(f"{self._transport.connection.url} tells no events: it is no TideQ service")
        self._parser = SseParser()
        try:
            while not self._take(self._parser.feed(await answer.more())):
                pass
        except ExchangeFailed as error:
            await self.aclose()
            raise NoAnswer(f"{self._transport.connection.url} told no events: {error}") from error
        # Nothing has happened yet, so whatever is lost from now on is all there is.
        self._last_id = self._last_id or BEGINNING

    async def _read_on(self, answer: "AsyncLongAnswer") -> None:
        try:
            self._take(self._parser.feed(await answer.more()))
        except ExchangeFailed:
            await self.aclose()
            # Whoever else listened to that service comes back now, too.
            await anyio.sleep(random.uniform(0, self._retry_ms / 1000))

    def _take(self, messages: list[Message]) -> bool:
        """Whether there was any."""
        for message in messages:
            self._last_id = message.last_id or self._last_id
            self._retry_ms = self._retry_ms if message.retry_ms is None else message.retry_ms
            if (event := event_in(message)) is not None:
                self._ready.append(event)
        return bool(messages)
