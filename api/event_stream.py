"""Events for one listener, as server-sent events: from where it left off, then as they happen.

A listener that does not read is cut off as soon as its share of waiting events is full: it finds what it missed by
going on from its last event. What the server had written by then stays with the connection until that ends.
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

from tideq.api import schemas
from tideq.api.answers import body_part, encode
from tideq.api.meters import Meters
from tideq.api.presence import gone
from tideq.queue_core.background import end
from tideq.queue_core.engine.outbox import BEGINNING, Event, Outbox, Page
from tideq.queue_core.engine.outbox_reader import OutboxReader, Subscription
from tideq.queue_core.engine.places import Places, beginning, joined
from tideq.queue_core.errors import QueueError

KEEP_ALIVE_SECONDS = 15.0
PATIENCE_SECONDS = 2.0
"""For a listener that was cut off to take what is on its way, so that its answer ends as it should."""
SHORT_PATIENCE_SECONDS = 0.5
"""For one whose key is out."""
RETRY_MS = 1_000

Watching = Callable[[], AbstractContextManager[asyncio.Future[None]]]

log = structlog.get_logger(__name__)


class EventFilter(msgspec.Struct, frozen=True):
    """What a listener wants; nothing of a kind is everything of it."""

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


class Listener:
    """`after` is the last event it has, if it goes on from one."""

    def __init__(
        self, outboxes: Sequence[Outbox], reader: OutboxReader, wants: Callable[[Event], bool], after: Places | None
    ) -> None:
        self.reader = reader
        self._outboxes = outboxes
        self._wants = wants
        self._after = after
        self._told = beginning(len(outboxes))

    async def chunks(self, live: Subscription) -> AsyncGenerator[bytes]:
        """`live` passes nothing on before the listener has caught up: it would only wait there."""
        await self.reader.reading()
        if self._after is None:
            live.wants, self._told = self._wants, self.reader.places
            yield _comment("listening", self._told)
        else:
            async for chunk in self._catch_up(live, self._after):
                yield chunk
        while not live.cut_off.is_set():
            if messages := self._tell(await live.take(KEEP_ALIVE_SECONDS)):
                yield messages
            elif not live.cut_off.is_set():
                # Nothing waits, so all that was read so far has been told or was not wanted.
                self._told = self._told.later(self.reader.places)
                yield _comment("still here", self._told)

    def _tell(self, events: Iterable[Event]) -> bytes:
        """What was not told yet; every message carries the place in all streams that it leads to."""
        messages: list[bytes] = []
        for event in events:
            if event.position > self._told.positions[event.partition]:
                self._told = self._told.moved(event.partition, event.position)
                messages.append(_message(event, self._told))
        return b"".join(messages)

    async def _catch_up(self, live: Subscription, after: Places) -> AsyncGenerator[bytes]:
        """To the end of each stream, then live, then what came in between."""
        self._told = after
        yield _comment("going on", after)
        for goes_live in (True, False):
            for outbox in self._outboxes:
                async for page in self._pages(outbox):
                    if page is None:
                        live.wants, self._told = self._wants, beginning(len(self._outboxes))
                        yield _gap(joined([await each.newest() for each in self._outboxes]))
                        return
                    if messages := self._tell(event for event in page.events if self._wants(event)):
                        yield messages
                    self._told = self._told.moved(outbox.partition, page.end)
            if goes_live:
                live.wants = self._wants

    async def _pages(self, outbox: Outbox) -> AsyncGenerator[Page | None]:
        """Until nothing follows; None, and no more, where the place is gone."""
        place = self._told.positions[outbox.partition]
        if place == BEGINNING and len(self._outboxes) > 1:
            # The place tells of all partitions, also of those where nothing had happened yet.
            page = await outbox.first_page()
            yield page
            if page is None or page.end == BEGINNING:
                return
            place = page.end
        while page := await outbox.page_after(place):
            yield page
            if page.end == place:
                return
            place = page.end
        yield None


class EventStream(Response[bytes]):
    def __init__(self, listener: Listener, meters: Meters, watching: Watching) -> None:
        """`watching` gives a future that is done once its caller is shut out."""
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(b"", media_type="text/event-stream", headers=headers)
        self._listener = listener
        self._meters = meters
        self._watching = watching

    def to_asgi_response(self, *args: Any, **options: Any) -> Any:
        parent: Any = super()
        return _Streaming(parent.to_asgi_response(*args, **options), self._listener, self._meters, self._watching)


class _Streaming:
    def __init__(self, answer: ASGIResponse, listener: Listener, meters: Meters, watching: Watching) -> None:
        self._answer = answer
        self._listener = listener
        self._meters = meters
        self._watching = watching

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        with self._listener.reader.subscribe(lambda _: False) as live, self._watching() as shut_out:
            leaving, ending = asyncio.ensure_future(gone(receive)), asyncio.ensure_future(live.cut_off.wait())
            telling = asyncio.ensure_future(self._tell(live, send))
            self._meters.listener_count += 1
            try:
                await asyncio.wait((leaving, telling, ending, shut_out), return_when=asyncio.FIRST_COMPLETED)
                if shut_out.done():
                    live.end()
                self._meters.cut_off_count += live.fell_behind
                if not leaving.done():
                    await asyncio.wait(
                        (leaving, telling), timeout=_patience(shut_out), return_when=asyncio.FIRST_COMPLETED
                    )
            finally:
                self._meters.listener_count -= 1
                await end(leaving, telling, ending)

    async def _tell(self, live: Subscription, send: Send) -> None:
        del self._answer.headers["content-length"]
        await self._answer.start_response(send)
        try:
            async for chunk in self._listener.chunks(live):
                await send(body_part(chunk, more=True))
        except QueueError as error:
            log.warning("event stream ended", error=str(error))
        except OSError:
            raise  # of the connection: nobody is there to be told anything
        except Exception:
            log.exception("event stream failed")
        await send(body_part(b"", more=False))


def _patience(shut_out: asyncio.Future[None]) -> float:
    return SHORT_PATIENCE_SECONDS if shut_out.done() else PATIENCE_SECONDS


def _message(event: Event, places: Places) -> bytes:
    record = event.record
    told = schemas.EventOut(
        task_id=event.task_id,
        task_type=event.task_type,
        status=record.text("state"),
        reason=record.text("reason"),
        version=record.number("version"),
        attempt=record.number("attempt"),
        priority=record.priority,
        worker_id=record.text("worker") or None,
        at=schemas.rfc3339(event.now_ms),
    )
    return b"id: %b\nevent: transition\ndata: %b\n\n" % (str(places).encode(), encode(told))


def _comment(words: str, place: Places) -> bytes:
    """Carries the place too: who wanted nothing of what happened need not read it again."""
    known = "" if place.is_beginning else f"id: {place}\n"
    return f": {words}\nretry: {RETRY_MS}\n{known}\n".encode()


def _gap(newest: Places) -> bytes:
    told = encode(schemas.GapOut(detail="events are missing here: read again what you show"))
    known = b"" if newest.is_beginning else b"id: %b\n" % str(newest).encode()
    return b"%bevent: gap\ndata: %b\n\n" % (known, told)
