"""Delivers transitions to the listeners of a process as they happen; reads only while there are listeners.

A listener that falls behind by more than its buffer is cut off, and so are all listeners if the reader falls behind the
trimmed stream. A cut-off listener can resume from its last event, so no loss is silent.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Sequence

import structlog

from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.outbox.stream import BEGINNING, Event, EventCursor, OutboxStream, Position, end_of, joined

BLOCK_MS = 2_000
"""Less than the timeout of commands: the reader uses the same connections."""
MAX_ENTRIES = 200

log = structlog.get_logger(__name__)


class Subscription:
    """Events for one listener."""

    def __init__(self, wants: Callable[[Event], bool], max_waiting: int) -> None:
        self.cut_off = asyncio.Event()
        self.fell_behind = False
        self.wants = wants
        self._max_waiting = max_waiting
        self._waiting: deque[Event] = deque()
        self._changed = asyncio.Event()

    def offer(self, event: Event) -> None:
        if self.cut_off.is_set() or not self.wants(event):
            return
        if len(self._waiting) >= self._max_waiting:
            self.end(fell_behind=True)
        else:
            self._waiting.append(event)
            self._changed.set()

    def end(self, *, fell_behind: bool = False) -> None:
        """Cut the listener off and drop its buffer, which bounds memory; it can read the events again."""
        self.fell_behind = fell_behind
        self._waiting.clear()
        self.cut_off.set()
        self._changed.set()

    async def take(self, seconds: float) -> list[Event]:
        """Returns all waiting events, at least one; none after `seconds` or once cut off."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        events = list(self._waiting)
        self._waiting.clear()
        if not self.cut_off.is_set():
            self._changed.clear()
        return events


class LiveReader:
    """Reads the stream of one partition."""

    def __init__(self, outbox: OutboxStream, duties: Duties) -> None:
        self._duties = duties
        self.newest: Position = BEGINNING
        """Every subscription was offered all events up to this position."""
        self._outbox = outbox
        self._subscriptions: set[Subscription] = set()
        self._is_closed = False
        self._has_failed = False
        """Whether the last read failed."""
        self._read_requested = asyncio.Event()
        self._started = asyncio.Event()
        self._job: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._job = self._duties.start("live events", self._read_for_ever)

    async def stop(self) -> None:
        self.close()
        if self._job is not None:
            await self._duties.stop(self._job)

    def close(self) -> None:
        """End all subscriptions, also later ones."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.end()

    async def wait_until_reading(self) -> None:
        """Returns once the start position is read: present subscriptions miss no event after it."""
        self._read_requested.set()
        await self._started.wait()

    @contextlib.contextmanager
    def forward_to(self, subscription: Subscription) -> Generator[None]:
        """Deliver to a subscription that the readers of other partitions may deliver to as well."""
        self._subscriptions.add(subscription)
        self._read_requested.set()
        if self._is_closed:
            subscription.end()
        try:
            yield
        finally:
            self._subscriptions.discard(subscription)

    async def _read_for_ever(self, duty: Duty) -> None:
        """Read until cancelled. After a failure, continues from the last position if the stream still has it."""
        while True:
            with duty.waiting():
                await self._read_requested.wait()
            if not self._started.is_set():
                self.newest = await self._outbox.newest()
                self._started.set()
            was_away, self._has_failed = self._has_failed, True
            await self._read_once(may_have_missed=was_away)
            self._has_failed = False
            duty.succeeded()
            self._pause_without_subscribers()

    def _pause_without_subscribers(self) -> None:
        """Stop reading without listeners: it cost 5 % of a single submission here, and 12 % in the store."""
        if not self._subscriptions:
            self._read_requested.clear()
            self._started.clear()

    async def _read_once(self, *, may_have_missed: bool) -> None:
        since = self.newest
        entries = await self._outbox.read(since.entry_id, BLOCK_MS, MAX_ENTRIES)
        if not entries:
            return
        if self._subscriptions:
            if may_have_missed or len(entries) == MAX_ENTRIES:
                await self._end_behind_gap(since)
            self._deliver(await self._outbox.parse(entries))
        self.newest = end_of(entries[-1].entry_id)

    async def _end_behind_gap(self, since: Position) -> None:
        """End all subscriptions if entries after `since` were trimmed before they were read."""
        if await self._outbox.gap_after(since.entry_id):
            log.warning("live events skipped: entries were trimmed before they were read")
            for subscription in self._subscriptions:
                subscription.end(fell_behind=True)

    def _deliver(self, events: list[Event]) -> None:
        for event in events:
            for subscription in self._subscriptions:
                subscription.offer(event)


class LiveEvents:
    """Use as an async context manager; leaving it ends every subscription.

    Limit: the order of events is that of each partition, not of all.
    """

    def __init__(self, outboxes: Sequence[OutboxStream], duties: Duties | None = None) -> None:
        own_duties = duties or Duties()
        self._readers = [LiveReader(outbox, own_duties) for outbox in outboxes]

    async def __aenter__(self) -> "LiveEvents":
        for reader in self._readers:
            reader.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(reader.stop() for reader in self._readers))

    def close(self) -> None:
        """End all subscriptions, also later ones."""
        for reader in self._readers:
            reader.close()

    async def wait_until_reading(self) -> None:
        """Returns once the start positions are read: present subscriptions miss no event after them."""
        await asyncio.gather(*(reader.wait_until_reading() for reader in self._readers))

    @property
    def cursor(self) -> EventCursor:
        return joined([reader.newest for reader in self._readers])

    @contextlib.contextmanager
    def subscribe(self, wants: Callable[[Event], bool], max_waiting: int = 1_000) -> Generator[Subscription]:
        subscription = Subscription(wants, max_waiting)
        with contextlib.ExitStack() as stack:
            for reader in self._readers:
                stack.enter_context(reader.forward_to(subscription))
            yield subscription
