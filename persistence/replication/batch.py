"""From the stream to batches: entries are read, become changes and rows, and get the definitions they need."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved
from tideq.persistence.replication.changes import Change, changes_in
from tideq.persistence.replication.rows import PURGED, Rows
from tideq.persistence.replication.writer import REFUSALS, WriteBatch
from tideq.queue_core.outbox.consumer import READ_COUNT, OutboxConsumer, OutboxEntry, written_ms

MAX_EVENTS = 20_000
"""Of one batch. More would only wait longer for their commit."""
SLICE = 1_000
"""Events that are looked at in one go, in a millisecond: PostgreSQL has so much to read until it must be fed again."""


Linger = Callable[[], Awaitable[None]]
"""Returns when it is time for a batch to be written although more may come."""


class Portion:
    """How many entries a batch may have: half of one that the database cancelled, then a tenth more after each."""

    def __init__(self) -> None:
        self.most = MAX_EVENTS

    def cancelled(self, count: int) -> None:
        self.most = max(count // 2, 1)

    def taken(self) -> None:
        self.most = min(self.most + self.most // 10 + 1, MAX_EVENTS)


class ReadBatch(NamedTuple):
    entries: Sequence[OutboxEntry]
    changes: Sequence[Change]
    definitions: dict[bytes, bytes]
    rows: Rows | None
    """None where they have to be made one by one, because of something in them."""
    is_full: bool
    """More is in the stream, as far as anybody knows."""

    def batch(self, before: Checkpoint) -> WriteBatch:
        newest = max((change.epoch for change in self.changes), default=before.epoch)
        if newest > before.epoch:
            raise CheckpointMoved(f"the stream is of epoch {newest}, history of {before.epoch}")
        last, count = self.entries[-1], before.event_count + len(self.changes)
        after = Checkpoint(before.epoch, last.entry_id, written_ms(last), count)
        return WriteBatch(self.changes, self.definitions, before, after, self.rows)

    @property
    def latest(self) -> Iterable[Change]:
        return self.changes if self.rows is None else self.rows.latest.values()


class BatchReader:
    """Entries becoming changes and rows, a little at a time: another batch is being written meanwhile."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.rows: Rows | None = Rows()

    async def add(self, entries: Iterable[OutboxEntry]) -> None:
        fresh: list[Change] = []
        for entry in entries:
            fresh += changes_in(entry)
            if len(fresh) >= SLICE:
                self._take(fresh)
                fresh = []
                await asyncio.sleep(0)
        self._take(fresh)

    def _take(self, changes: list[Change]) -> None:
        self.changes += changes
        try:
            self.rows = self.rows and self.rows.add(changes)
        except REFUSALS:
            self.rows = None

    def wanted(self) -> list[bytes]:
        """Tasks whose definitions their rows will take: new ones and dead ones."""
        if self.rows is None:
            return list(dict.fromkeys(change.task_id for change in self.changes))
        return list(dict.fromkeys((*self.rows.born, *(death.task_id for death in self.rows.deaths))))


async def read_batch(
    feed: OutboxConsumer, after: str, block_ms: int | None = None, linger: Linger | None = None, most: int = MAX_EVENTS
) -> ReadBatch:
    """Waits for a first entry, if told to, then takes all there are, up to a batch, and all that come meanwhile."""
    entries, gathering = await feed.read(after, block_ms, min(READ_COUNT, most)), BatchReader()
    await gathering.add(entries)
    more = entries
    while more and len(gathering.changes) < MAX_EVENTS and len(entries) < most:
        if len(more) < READ_COUNT:
            if linger is None:
                break
            await linger()
            linger = None
        more = await feed.read(entries[-1].entry_id, count=min(READ_COUNT, most - len(entries)))
        entries += more
        await gathering.add(more)
    is_full = len(gathering.changes) >= MAX_EVENTS or len(entries) >= most
    return await _with_definitions(feed, entries, gathering, is_full=is_full)


async def _with_definitions(
    feed: OutboxConsumer, entries: Sequence[OutboxEntry], gathering: BatchReader, *, is_full: bool
) -> ReadBatch:
    """A task the store no longer has was purged since: what it went through before is of no interest any more."""
    changes, rows, wanted = gathering.changes, gathering.rows, gathering.wanted()
    definitions = await feed.definitions(wanted)
    if missing := [task_id for task_id in wanted if task_id not in definitions]:
        gone = await feed.absent(missing)
        changes = [
            each
            for each in changes
            if each.task_id not in gone or not each.known_version or each.known_reason in (None, PURGED)
        ]
        rows = None
    return ReadBatch(entries, changes, definitions, rows, is_full)
