"""The follower: reads the outbox and hands every transition to the listeners.

Any number may run. The follower that moves the journal's cursor owns the journal; the others watch the cursor and take
over when it stands still. Nothing waits for the follower: history trims the stream, and missed entries count as gaps.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.outbox.monitor_cursor import Hidden, MonitorCursor
from tideq.workers.monitor.journal.origins import Origins
from tideq.workers.monitor.journal.transition import ObservedTransition, readable_transitions_in, transitions_in

IDLE_SECONDS, BUSY_SECONDS = 0.25, 0.05
"""Pauses between reads: batches cost less than single entries, and logs need no millisecond latency."""
BUSY_ENTRIES, MAX_ENTRIES = 20, 200
STANDBY_SECONDS = 1.0
SLICE = 250
"""Transitions published at once: in `tideq up` the API serves requests between two slices."""

log = structlog.get_logger(__name__)


class TransitionListener(Protocol):
    """Receives every transition of the queue in order, at most once among all monitors. Must not block."""

    wants_origins: bool
    """Whether `ObservedTransition.origin` is needed: it costs a read from the store for every new task."""

    def observe(self, transitions: Sequence[ObservedTransition]) -> None: ...


class Follower:
    def __init__(self, store: MonitorCursor, listeners: Sequence[TransitionListener]) -> None:
        self.published_count = 0
        self.gap_count = 0
        """How often the stream had been trimmed past the journal's cursor."""
        self._missed_count = 0
        self._store = store
        self._listeners = listeners
        self._origins = Origins(store) if any(listener.wants_origins for listener in listeners) else None
        self._seen: str | None = None

    @property
    def skipped_count(self) -> int:
        """Events that could not be read, and events of slices for which a listener failed."""
        return self._store.skipped_count + self._missed_count

    async def follow_for_ever(self, duties: Duties) -> None:
        """After a failure it continues at the journal's cursor; transitions taken and not yet published are lost."""
        if self._listeners:
            await duties.add("journal", self._follow)

    async def _follow(self, duty: Duty) -> None:
        while True:
            pause = await self.step()
            duty.succeeded()
            await asyncio.sleep(pause)

    async def step(self) -> float:
        """Publishes new transitions; returns the pause until the next read, in seconds."""
        position = await self._store.position()
        if not position:
            newest = await self._store.last_id()
            await self._store.move("", newest)
            self._seen = newest
            return IDLE_SECONDS
        if self._seen not in (None, position):
            self._seen = position
            return STANDBY_SECONDS
        self._seen = position
        return await self._publish_after(position)

    async def _publish_after(self, position: str) -> float:
        page = await self._store.page(position, MAX_ENTRIES)
        if not page.entries:
            return IDLE_SECONDS
        transitions = list[ObservedTransition]()
        for entry in page.entries:
            try:
                transitions += transitions_in(entry)
            except (KeyError, ValueError):
                transitions += readable_transitions_in(entry, self._store.skip)
            if len(transitions) >= SLICE:
                await asyncio.sleep(0)
        last = page.entries[-1].entry_id
        if not await self._take_slice(position, last, transitions):
            return STANDBY_SECONDS
        self._seen = last
        if page.gap:
            self.gap_count += 1
            log.warning("journal gap found: transitions were trimmed before they were read")
        await self._publish(transitions)
        return _pause(len(page.entries))

    async def _take_slice(self, position: str, last: str, transitions: Sequence[ObservedTransition]) -> bool:
        affected = [each for each in transitions if each.begins_backoff or each.may_end_backoff]
        rows = [Hidden(each.task_key, each.begins_backoff) for each in affected]
        hidden_until = await self._store.move(position, last, rows)
        if hidden_until is None:
            return False
        for each, until_ms in zip(affected, hidden_until, strict=True):
            each.hidden_until_ms = until_ms
        return True

    async def _publish(self, transitions: Sequence[ObservedTransition]) -> None:
        task_types = await self._store.task_types()
        for at in range(0, len(transitions), SLICE):
            part = transitions[at : at + SLICE]
            for each in part:
                each.task_type = task_types.task_type(each.lane, each.lane_at_ms)
            if self._origins is not None:
                await self._origins.fill_in(part)
            for listener in self._listeners:
                self._missed_count += _notify(listener, part)
            self.published_count += len(part)
            await asyncio.sleep(0)


def _notify(listener: TransitionListener, transitions: Sequence[ObservedTransition]) -> int:
    """Keeps a listener's error from the others; returns how many transitions it may have missed."""
    try:
        listener.observe(transitions)
    except Exception:
        log.exception("journal listener failed", listener=type(listener).__name__)
        return len(transitions)
    return 0


def _pause(entry_count: int) -> float:
    if entry_count >= MAX_ENTRIES:
        return 0.0
    return BUSY_SECONDS if entry_count >= BUSY_ENTRIES else IDLE_SECONDS
