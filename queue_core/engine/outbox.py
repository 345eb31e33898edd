"""Reading the outbox: transitions as events, and one reader a process that passes them on as they happen.

The reader is for watching: it starts at the newest entry and drops what a slow listener cannot take. Replication to
history reads the stream itself and acknowledges.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import msgspec
import structlog
from redis.exceptions import RedisError

from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.record import Record, parse_record
from tideq.queue_core.engine.replies import text

BLOCK_MS = 5_000
RECONNECT_SECONDS = 0.5
MAX_ENTRIES = 200

log = structlog.get_logger(__name__)


class Event(msgspec.Struct, frozen=True):
    entry_id: str
    now_ms: int
    epoch: str
    task_id: str
    record: Record
    body: bytes | None


def parse_entry(entry_id: str, fields: Mapping[bytes, bytes]) -> Iterator[Event]:
    """The events of one stream entry, in the order they happened."""
    now_ms, epoch = int(fields[b"now_ms"]), text(fields[b"epoch"])
    for name, value in fields.items():
        if b":" not in name and name not in (b"now_ms", b"epoch"):
            body = fields.get(name + b":body")
            yield Event(entry_id, now_ms, epoch, text(name), parse_record(value), body)


class Subscription:
    """Events for one listener. A listener that falls behind by more than its share is cut off, never buffered for."""

    def __init__(self, wants: Callable[[Event], bool], max_waiting: int) -> None:
        self.is_cut_off = False
        self._wants = wants
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(max_waiting + 1)
        self._max_waiting = max_waiting

    def offer(self, event: Event) -> None:
        if self.is_cut_off or not self._wants(event):
            return
        if self._events.qsize() >= self._max_waiting:
            self.end()
        else:
            self._events.put_nowait(event)

    def end(self) -> None:
        if not self.is_cut_off:
            self.is_cut_off = True
            self._events.put_nowait(None)

    async def next(self, seconds: float) -> Event | None:
        """The next event, or None when the time is up or there will be none."""
        try:
            async with asyncio.timeout(seconds):
                return await self._events.get()
        except TimeoutError:
            return None


class OutboxReader:
    """Use as an async context manager; leaving it ends every subscription."""

    def __init__(self, keys: Keys, open_listener: Callable[[], Any]) -> None:
        self._stream = keys.key("outbox")
        self._open_listener = open_listener
        self._subscriptions: set[Subscription] = set()
        self._job: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "OutboxReader":
        self._job = asyncio.create_task(self._read_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        if self._job is not None:
            self._job.cancel()
            await asyncio.gather(self._job, return_exceptions=True)

    def close(self) -> None:
        for subscription in self._subscriptions:
            subscription.end()

    @contextlib.contextmanager
    def subscribe(self, wants: Callable[[Event], bool], max_waiting: int = 1_000) -> Generator[Subscription]:
        subscription = Subscription(wants, max_waiting)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    async def _read_for_ever(self) -> None:
        last_id = "$"
        while True:
            listener = self._open_listener()
            try:
                while True:
                    last_id = await self._read_once(listener, last_id)
            except (RedisError, OSError) as error:
                log.warning("outbox reader lost its connection", error=str(error))
                await asyncio.sleep(RECONNECT_SECONDS)
            finally:
                with contextlib.suppress(RedisError, OSError):
                    await listener.aclose()

    async def _read_once(self, listener: Any, last_id: str) -> str:
        """`$` means the newest at the time of asking, so it is only asked for once."""
        if last_id == "$":
            newest = await listener.xrevrange(self._stream, count=1)
            last_id = text(newest[0][0]) if newest else "0-0"
        answer = await listener.xread({self._stream: last_id}, count=MAX_ENTRIES, block=BLOCK_MS)
        for _, entries in answer or ():
            for entry_id, fields in entries:
                last_id = text(entry_id)
                self._pass_on(last_id, fields)
        return last_id

    def _pass_on(self, entry_id: str, fields: Mapping[bytes, bytes]) -> None:
        for event in parse_entry(entry_id, fields):
            for subscription in self._subscriptions:
                subscription.offer(event)
