"""Batches: entries of the outbox stream as changes and rows, with the definitions they need."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved
from tideq.persistence.replication.rows import MAX_NUMBER, PURGED, ROW_ERRORS, Change, Rows
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import ID_LENGTH, READ_COUNT, OutboxEntry, entry_order, written_ms
from tideq.queue_core.transitions import TERMINAL

MAX_EVENTS = 20_000
"""The limit of a batch: more events would only wait longer for their commit."""
SLICE = 1_000
"""Events made into rows without a pause, about a millisecond: PostgreSQL has enough buffered input for that long."""
MAX_INSTANT_MS = 2**47
"""The limit of PostgreSQL's instants."""
UNREADABLE = b"0\0"
"""A prefix that marks a record as of an unreadable format; the record follows as it came."""
ENDED = {state.encode() for state in TERMINAL}

Linger = Callable[[], Awaitable[None]]
"""Returns when a batch must be written although more events may come."""
MAX_FLUSH_WAIT_MS = 1_000
"""The limit of one blocking read: in a cluster the connection treats a longer silence as a lost server."""


class Batch(NamedTuple):
    """What one transaction writes: the changes of whole entries."""

    entries: Sequence[OutboxEntry]
    changes: Sequence[Change]
    definitions: dict[bytes, bytes]
    rows: Rows | None
    """None where an event is invalid or a definition is missing: the writer then finds the invalid events."""
    is_full: bool
    """The batch reached a limit, so the stream probably has more entries."""

    def checkpoint_after(self, before: Checkpoint) -> Checkpoint:
        """Raises CheckpointMoved if the stream is of a later epoch."""
        newest = max((change.epoch for change in self.changes), default=before.epoch)
        if newest > before.epoch:
            raise CheckpointMoved(f"the stream is of epoch {newest}, history of {before.epoch}")
        last, count = self.entries[-1], before.event_count + len(self.changes)
        return Checkpoint(before.epoch, last.entry_id, written_ms(last), count)

    @property
    def latest(self) -> Iterable[Change]:
        return self.changes if self.rows is None else self.rows.latest.values()


class BatchLimit:
    """The maximum of entries of a batch: half of a batch that the database cancelled, then a tenth more after each."""

    def __init__(self) -> None:
        self.max_entries = MAX_EVENTS

    def shrink(self, count: int) -> None:
        self.max_entries = max(count // 2, 1)

    def grow(self) -> None:
        self.max_entries = min(self.max_entries + self.max_entries // 10 + 1, MAX_EVENTS)


class BatchReader:
    """Makes changes and rows from entries in slices, so that another batch can be written meanwhile."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.rows: Rows | None = Rows()

    async def add(self, entries: Iterable[OutboxEntry]) -> None:
        fresh: list[Change] = []
        for entry in entries:
            fresh += changes_in(entry)
            if len(fresh) >= SLICE:
                self._make_rows(fresh)
                fresh = []
                await asyncio.sleep(0)
        self._make_rows(fresh)

    def _make_rows(self, changes: list[Change]) -> None:
        self.changes += changes
        try:
            self.rows = self.rows and self.rows.add(changes)
        except ROW_ERRORS:
            self.rows = None

    def definition_ids(self) -> list[bytes]:
        """Returns the tasks whose rows need definitions: new ones and dead letters."""
        if self.rows is None:
            return list(dict.fromkeys(change.task_id for change in self.changes))
        return list(dict.fromkeys((*self.rows.created, *(death.task_id for death in self.rows.deaths))))


async def read_batch(
    consumer: OutboxConsumer,
    after: str,
    block_ms: int | None = None,
    linger: Linger | None = None,
    max_entries: int = MAX_EVENTS,
) -> Batch:
    """Returns all entries after an id, up to a batch, and those that arrive during the read.

    Waits up to `block_ms` for a first entry; `linger` is awaited once if the entries do not fill a read. No gap is
    looked for: only what history acknowledged is trimmed, so a gap can only be at its start (`backfill.py`).
    """
    entries, reader = await consumer.read(after, block_ms, min(READ_COUNT, max_entries)), BatchReader()
    await reader.add(entries)
    more = entries
    while more and len(reader.changes) < MAX_EVENTS and len(entries) < max_entries:
        if len(more) < READ_COUNT:
            if linger is None:
                break
            await linger()
            linger = None
        more = await consumer.read(entries[-1].entry_id, count=min(READ_COUNT, max_entries - len(entries)))
        entries += more
        await reader.add(more)
    is_full = len(reader.changes) >= MAX_EVENTS or len(entries) >= max_entries
    return await _with_definitions(consumer, entries, reader, is_full=is_full)


async def linger_until_flush(consumer: OutboxConsumer, linger_ms: int) -> None:
    """Waits for more events for up to `linger_ms`; returns at once when a flush is requested.

    The cost of a batch is shared by its events, and a task that changes twice within a batch is written once: beside a
    busy service this halves the load of history (docs/history.md).
    """
    now = asyncio.get_running_loop().time
    until = now() + linger_ms / 1000
    while (left_ms := round((until - now()) * 1000)) > 0:
        if await consumer.flush_requested(min(left_ms, MAX_FLUSH_WAIT_MS)):
            return


async def _with_definitions(
    consumer: OutboxConsumer, entries: Sequence[OutboxEntry], reader: BatchReader, *, is_full: bool
) -> Batch:
    """Drops the events of tasks that the store no longer has: they were purged since. Their purge event is kept."""
    changes, rows, definition_ids = reader.changes, reader.rows, reader.definition_ids()
    definitions = await consumer.definitions(definition_ids)
    if missing := [task_id for task_id in definition_ids if task_id not in definitions]:
        gone = await consumer.absent(missing)
        changes = [
            each
            for each in changes
            if each.task_id not in gone or not each.readable_version or each.readable_reason in (None, PURGED)
        ]
        rows = None
    return Batch(entries, changes, definitions, rows, is_full)


def changes_in(entry: OutboxEntry) -> list[Change]:
    """Returns the changes of an entry in their order. If the entry is unreadable, each change is unreadable too."""
    entry_id, fields = entry
    try:
        now_ms, epoch, body_of = int(fields[b"now_ms"]), int(fields[b"epoch"]), fields.get
    except (KeyError, ValueError):
        now_ms, epoch, body_of = -1, -1, fields.get
    if not (0 <= now_ms < MAX_INSTANT_MS and 0 <= epoch < MAX_NUMBER):
        at_ms, _ = entry_order(entry_id)
        return [Change(entry_id, 0, at_ms, name, UNREADABLE + fields[name], None) for name in entry.event_names]
    return [
        Change(entry_id, epoch, now_ms, name, packed, body_of(name + b":body"))
        for name, packed in fields.items()
        if len(name) == ID_LENGTH
    ]


def finished_tasks(changes: Iterable[Change], but_not: Collection[bytes]) -> list[tuple[str, int]]:
    """Returns the tasks that ended, with the version they ended in, except purged ones and those in `but_not`."""
    latest, finished = {change.task_id: change for change in changes}, list[tuple[str, int]]()
    for task_id, change in latest.items():
        version = 0 if task_id in but_not else change.readable_version
        if version and change.state in ENDED and (PURGED not in change.packed or change.readable_reason != PURGED):
            finished.append((change.printable_id, version))
    return finished
