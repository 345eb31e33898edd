"""The follower: reads the outbox behind everybody's back and hands every transition to the listeners.

Any number may run. One of them has the journal at a time, by being the one who moves it; the others look on, and take
over when it stands still. Nothing waits for it: what it cannot keep up with is trimmed by history, missed and counted.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.outbox.monitor_cursor import READ_COUNT, Hidden, MonitorCursor
from tideq.workers.monitor.journal.origins import Origins
from tideq.workers.monitor.journal.transition import ObservedTransition, readable_transitions_in, transitions_in

IDLE_SECONDS, BUSY_SECONDS = 0.25, 0.05
"""Between two looks: whoever reads entry by entry pays for every one, and nobody needs to know within milliseconds."""
BUSY_ENTRIES = 20
STANDBY_SECONDS = 1.0
SLICE = 250
"""Transitions handed over at once: in `tideq up` the API answers between two slices."""

log = structlog.get_logger(__name__)


class TransitionListener(Protocol):
    """Hears every transition of the queue, in order, at most once among all monitors. Must be quick, and not block."""

    wants_origins: bool
    """Whether `ObservedTransition.origin` has to be filled in: it takes a look at the store for every new task."""

    def observe(self, transitions: Sequence[ObservedTransition]) -> None: ...


class Follower:
    def __init__(self, store: MonitorCursor, listeners: Sequence[TransitionListener]) -> None:
        self.told_count = 0
        self.gap_count = 0
        """How often the stream had been trimmed past the journal's place."""
        self.skipped_count = 0
        """Events that could not be read, and were told to nobody; and those of a slice that a listener failed over."""
        self._store = store
        self._listeners = listeners
        self._origins = Origins(store) if any(listener.wants_origins for listener in listeners) else None
        self._seen: str | None = None

    async def follow_for_ever(self, duties: Duties) -> None:
        """A failure costs what it was about to tell; it goes on from the journal's place."""
        if self._listeners:
            await duties.add("journal", self._follow)

    async def _follow(self, duty: Duty) -> None:
        while True:
            pause = await self.step()
            duty.succeeded()
            await asyncio.sleep(pause)

    async def step(self) -> float:
        """Tells what is new; returns in how many seconds it is worth looking again."""
        position = await self._store.position()
        if not position:
            newest = await self._store.newest()
            await self._store.move("", newest)
            self._seen = newest
            return IDLE_SECONDS
        if self._seen not in (None, position):
            self._seen = position
            return STANDBY_SECONDS
        self._seen = position
        return await self._publish_after(position)

    async def _publish_after(self, position: str) -> float:
        stretch = await self._store.read(position)
        if not stretch.entries:
            return IDLE_SECONDS
        transitions = list[ObservedTransition]()
        for entry in stretch.entries:
            try:
                transitions += transitions_in(entry)
            except (KeyError, ValueError):
                readable, skipped_count = readable_transitions_in(entry)
                transitions += readable
                self.skipped_count += skipped_count
            if len(transitions) >= SLICE:
                await asyncio.sleep(0)
        last = stretch.entries[-1].entry_id
        if not await self._take_slice(position, last, transitions):
            return STANDBY_SECONDS
        self._seen = last
        self._note_gap(stretch.has_gap)
        await self._hand_over(transitions)
        return _pause(len(stretch.entries))

    async def _take_slice(self, position: str, last: str, transitions: Sequence[ObservedTransition]) -> bool:
        asking = [each for each in transitions if each.begins_backoff or each.may_end_backoff]
        rows = [Hidden(each.task_key, each.begins_backoff) for each in asking]
        told = await self._store.move(position, last, rows)
        if told is None:
            return False
        for each, until_ms in zip(asking, told, strict=True):
            each.hidden_until_ms = until_ms
        return True

    def _note_gap(self, has_gap: bool) -> None:
        if has_gap:
            self.gap_count += 1
            log.warning("journal fell behind what the stream keeps: transitions were not told")

    async def _hand_over(self, transitions: Sequence[ObservedTransition]) -> None:
        task_types = await self._store.task_types()
        for at in range(0, len(transitions), SLICE):
            part = transitions[at : at + SLICE]
            for each in part:
                each.task_type = task_types.task_type(each.lane, each.lane_at_ms)
            if self._origins is not None:
                await self._origins.fill_in(part)
            for listener in self._listeners:
                self.skipped_count += _tell(listener, part)
            self.told_count += len(part)
            await asyncio.sleep(0)


def _tell(listener: TransitionListener, transitions: Sequence[ObservedTransition]) -> int:
    """One listener's mistake is no other's. Says how many it may not have heard."""
    try:
        listener.observe(transitions)
    except Exception:
        log.exception("a listener of the journal failed", listener=type(listener).__name__)
        return len(transitions)
    return 0


def _pause(entry_count: int) -> float:
    if entry_count >= READ_COUNT:
        return 0.0
    return BUSY_SECONDS if entry_count >= BUSY_ENTRIES else IDLE_SECONDS
