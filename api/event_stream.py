"""Server-sent events for one client: from its last event on, then live.

A client that does not read is cut off when its buffer of waiting events is full; it can resume from its last event.
Bytes already written stay with the connection until it ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import structlog
from litestar import Response
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from tideq.api.edge.disconnect import disconnected
from tideq.api.edge.responses import body_message, encode
from tideq.api.metrics.request_metrics import ProcessMetrics
from tideq.api.schemas.events import GAP_DETAIL, EventOut, GapOut
from tideq.api.schemas.times import rfc3339
from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.errors import QueueError
from tideq.queue_core.outbox.live import LiveEvents, Subscription
from tideq.queue_core.outbox.stream import Event, EventCursor, EventPage, OutboxStream, beginning, joined

KEEP_ALIVE_SECONDS = 15.0
DRAIN_SECONDS = 2.0
"""Time for a client that was cut off to read what was written, so that its response ends properly."""
REVOKED_DRAIN_SECONDS = 0.5
"""The same for a client whose key was revoked."""
RETRY_MS = 1_000

WatchKey = Callable[[], AbstractContextManager[asyncio.Future[None]]]

log = structlog.get_logger(__name__)


class EventFilter(msgspec.Struct, frozen=True):
    """Which events a client wants; an empty set means all."""

    task_ids: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset()
    task_types: frozenset[str] = frozenset()
    priorities: frozenset[str] = frozenset()
    worker_ids: frozenset[str] = frozenset()

    def wants(self, event: Event) -> bool:
        record = event.record
        return (
            (not self.task_ids or event.task_id in self.task_ids)
            and (not self.statuses or record.text("state") in self.statuses)
            and (not self.task_types or event.task_type in self.task_types)
            and (not self.priorities or record.priority in self.priorities)
            and (not self.worker_ids or record.text("worker") in self.worker_ids)
        )


class EventStreamSession:
    """`after` is the last event that the client has, or None to start with the next one."""

    def __init__(
        self,
        outboxes: Sequence[OutboxStream],
        reader: LiveEvents,
        wants: Callable[[Event], bool],
        after: EventCursor | None,
    ) -> None:
        self.reader = reader
        self._outboxes = outboxes
        self._wants = wants
        self._after = after
        self._cursor = beginning(len(outboxes))

    async def chunks(self, live: Subscription) -> AsyncGenerator[bytes]:
        """The stream's bytes. `live` delivers nothing before the backlog was read, so that its buffer does not fill."""
        await self.reader.wait_until_reading()
        if self._after is None:
            live.wants, self._cursor = self._wants, self.reader.cursor
            yield _comment("stream opened", self._cursor)
        else:
            async for chunk in self._catch_up(live, self._after):
                yield chunk
        while not live.cut_off.is_set():
            if messages := self._encode_new(await live.take(KEEP_ALIVE_SECONDS)):
                yield messages
            elif not live.cut_off.is_set():
                # Nothing waits, so every event read so far was sent or filtered out.
                self._cursor = self._cursor.later(self.reader.cursor)
                yield _comment("keep-alive", self._cursor)

    def _encode_new(self, events: Iterable[Event]) -> bytes:
        """The events not sent yet, as messages; the id of each is the cursor after it, over all partitions."""
        messages: list[bytes] = []
        for event in events:
            if event.position > self._cursor.positions[event.partition]:
                self._cursor = self._cursor.moved(event.partition, event.position)
                messages.append(_message(event, self._cursor))
        return b"".join(messages)

    async def _catch_up(self, live: Subscription, after: EventCursor) -> AsyncGenerator[bytes]:
        """Reads to the end of each stream, goes live, then reads what arrived in between."""
        self._cursor = after
        yield _comment("stream resumed", after)
        for goes_live in (True, False):
            for outbox in self._outboxes:
                async for page in self._pages(outbox):
                    if page is None:
                        live.wants, self._cursor = self._wants, beginning(len(self._outboxes))
                        yield _gap(joined([await each.newest() for each in self._outboxes]))
                        return
                    if messages := self._encode_new(event for event in page.events if self._wants(event)):
                        yield messages
                    self._cursor = self._cursor.moved(outbox.partition, page.end)
            if goes_live:
                live.wants = self._wants

    async def _pages(self, outbox: OutboxStream) -> AsyncGenerator[EventPage | None]:
        """Pages up to the end of the stream; None, as the last, where the position was trimmed."""
        position = self._cursor.positions[outbox.partition]
        while page := await outbox.page_after(position):
            yield page
            if page.end == position:
                return
            position = page.end
        yield None


class EventStream(Response[bytes]):
    def __init__(self, session: EventStreamSession, metrics: ProcessMetrics, watch_key: WatchKey) -> None:
        """`watch_key` gives a future that is done once the caller's key is revoked."""
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(b"", media_type="text/event-stream", headers=headers)
        self._session = session
        self._metrics = metrics
        self._watch_key = watch_key

    def to_asgi_response(self, *args: Any, **options: Any) -> Any:
        parent: Any = super()
        return _Streaming(parent.to_asgi_response(*args, **options), self._session, self._metrics, self._watch_key)


class _Streaming:
    def __init__(
        self, answer: ASGIResponse, session: EventStreamSession, metrics: ProcessMetrics, watch_key: WatchKey
    ) -> None:
        self._answer = answer
        self._session = session
        self._metrics = metrics
        self._watch_key = watch_key

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        with self._session.reader.subscribe(lambda _: False) as live, self._watch_key() as revoked:
            leaving, ending = asyncio.ensure_future(disconnected(receive)), asyncio.ensure_future(live.cut_off.wait())
            sending = asyncio.ensure_future(self._send_chunks(live, send))
            self._metrics.listener_count += 1
            try:
                await asyncio.wait((leaving, sending, ending, revoked), return_when=asyncio.FIRST_COMPLETED)
                if revoked.done():
                    live.end()
                self._metrics.cut_off_count += live.fell_behind
                if not leaving.done():
                    await asyncio.wait(
                        (leaving, sending), timeout=_drain_seconds(revoked), return_when=asyncio.FIRST_COMPLETED
                    )
            finally:
                self._metrics.listener_count -= 1
                await cancel_and_wait(leaving, sending, ending)

    async def _send_chunks(self, live: Subscription, send: Send) -> None:
        del self._answer.headers["content-length"]
        await self._answer.start_response(send)
        try:
            async for chunk in self._session.chunks(live):
                await send(body_message(chunk, more=True))
        except QueueError as error:
            log.warning("event stream ended", error=str(error))
        except OSError:
            raise  # The connection is broken, so nothing more can be sent.
        except Exception:
            log.exception("event stream failed")
        await send(body_message(b"", more=False))


def _drain_seconds(revoked: asyncio.Future[None]) -> float:
    return REVOKED_DRAIN_SECONDS if revoked.done() else DRAIN_SECONDS


def _message(event: Event, cursor: EventCursor) -> bytes:
    record = event.record
    data = EventOut(
        task_id=event.task_id,
        task_type=event.task_type,
        status=record.text("state"),
        reason=record.text("reason"),
        version=record.number("version"),
        attempt=record.number("attempt"),
        priority=record.priority,
        worker_id=record.text("worker") or None,
        at=rfc3339(event.now_ms),
    )
    return b"id: %b\nevent: transition\ndata: %b\n\n" % (str(cursor).encode(), encode(data))


def _comment(text: str, cursor: EventCursor) -> bytes:
    """Carries the cursor, so that a client whose filter matched nothing need not read those events again."""
    event_id = "" if cursor.is_beginning else f"id: {cursor}\n"
    return f": {text}\nretry: {RETRY_MS}\n{event_id}\n".encode()


def _gap(newest: EventCursor) -> bytes:
    data = encode(GapOut(detail=GAP_DETAIL))
    event_id = b"" if newest.is_beginning else b"id: %b\n" % str(newest).encode()
    return b"%bevent: gap\ndata: %b\n\n" % (event_id, data)
