"""Rebuild: restores every live task from history into an empty store.

The store is closed during the rebuild, and the last step opens it under a new epoch. An interrupted rebuild is run
again from the start. Data that the store still has is written to history first. Limit: writes that were not replicated
when the store was lost are lost.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import structlog
from psycopg import AsyncServerCursor

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import packed_record, stored_definition
from tideq.persistence.partition_owner import OWNS_ALL, PartitionOwner
from tideq.persistence.recovery.parked import parked_tasks
from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.outbox.reader import FIRST_ID
from tideq.queue_core.scripts.record import checked_record
from tideq.queue_core.settings import QueueSettings, Retention
from tideq.queue_core.store.restore import KeptKey, RestoredTask, StoreRestore, StoreStatus

FETCH_COUNT = 500
LIVE = ["queued", "assigned", "executing"]

log = structlog.get_logger(__name__)

T = TypeVar("T")
Progress = Callable[[int, int], None]
Flush = Callable[[Checkpoint], Awaitable[Checkpoint]]


class RecoveryContext(NamedTuple):
    """The arguments of a rebuild and a reconciliation: one partition of the store, and its history."""

    connection: Connection
    restoration: StoreRestore
    checkpoints: Checkpoints
    settings: QueueSettings
    owner: PartitionOwner


class RebuildPlan(NamedTuple):
    """What a rebuild would restore."""

    live_by_state: dict[str, int]
    dead_letter_count: int
    key_count: int
    parked_count: int
    """Tasks with parked events, which are restored as of the last one."""

    @property
    def live_count(self) -> int:
        return sum(self.live_by_state.values())


class SkippedTask(NamedTuple):
    """A task whose row cannot be read, and which history keeps for a version that can."""

    task_id: str
    record: bytes
    problem: str


class RestoreBatch(NamedTuple):
    """Tasks to restore, the ids of those with errors, and tasks that cannot be restored."""

    tasks: list[RestoredTask]
    failed_ids: list[str]
    skipped: list[SkippedTask]

    @property
    def row_count(self) -> int:
        return len(self.tasks) + len(self.skipped)


class Rebuild:
    """`flush` writes the closed store's entries beyond a checkpoint; `on_progress` gets restored and total counts."""

    def __init__(self, context: RecoveryContext, flush: Flush, on_progress: Progress) -> None:
        self._connection, self._restoration, self._checkpoints, self._settings, self._owner = context
        self._flush = flush
        self._on_progress = on_progress

    async def plan(self) -> RebuildPlan:
        live = dict(await self._rows("live_counts", (LIVE, *(self._owner.id_bytes,) * 2)))
        retention = self._settings.retention
        spans = (retention.dead_letter_ttl_ms, retention.idempotency_ttl_ms)
        ((dead, keys, parked),) = await self._rows("other_counts", (*spans, self._settings.partition))
        return RebuildPlan(live, dead, keys, parked)

    async def run(self, status: StoreStatus, checkpoint: Checkpoint) -> str:
        """Replaces the content of the store; returns the new epoch."""
        epoch = max(checkpoint.epoch, int(status.epoch) if status.is_usable else 0) + 1
        closed = await self._restoration.close(status, checkpoint.now_ms)
        checkpoint = await self._flush(checkpoint)
        await self._checkpoints.enter_epoch(
            self._connection, Checkpoint(epoch, FIRST_ID, checkpoint.now_ms, checkpoint.event_count)
        )
        await self._restoration.wipe()
        await self._put_tasks((await self.plan()).live_count)
        await self._put_parked()
        await self._put_rest()
        await self._restoration.enter(closed, str(epoch), checkpoint.now_ms)
        return str(epoch)

    async def _put_tasks(self, total: int) -> None:
        """Reads the next batch while one is restored, because half of the time is the store's."""
        done = 0
        async with rows_of(self._connection, "live_tasks", (LIVE, *(self._owner.id_bytes,) * 2)) as cursor:
            reading = asyncio.create_task(_read(cursor))
            try:
                while (batch := await reading).row_count:
                    reading = asyncio.create_task(_read(cursor))
                    await _put(self._connection, self._restoration, await self._only_owned(batch))
                    done += batch.row_count
                    self._on_progress(done, total)
            finally:
                await cancel_and_wait(reading)

    async def _put_parked(self) -> None:
        """Call it after `_put_tasks`: history has older rows of some of these tasks."""
        for tasks in _slices(await parked_tasks(self._connection, self._settings.partition)):
            await self._restoration.put_tasks([task.restored for task in tasks])

    async def _only_owned(self, batch: RestoreBatch) -> RestoreBatch:
        own = await self._owner.select_owned([each.task_id for each in (*batch.tasks, *batch.skipped)])
        return RestoreBatch(
            [task for task in batch.tasks if task.task_id in own],
            [task_id for task_id in batch.failed_ids if task_id in own],
            [each for each in batch.skipped if each.task_id in own],
        )

    async def _put_rest(self) -> None:
        """Restores idempotency keys while the store is closed: a repeated submission must find its key."""
        await put_keys_and_dead_letters(self._connection, self._restoration, self._settings.retention, self._owner)
        side_data = dict(await self._rows("side_data", (self._settings.partition,)))
        due_ms = await self._restoration.now_ms() + self._settings.leases.heartbeat_timeout_ms
        await self._restoration.put_side_data(side_data, due_ms)

    async def _rows(self, name: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Returns all rows at once: for statements with few rows, whatever the queue's size."""
        return await (await self._connection.execute(statement(name), parameters)).fetchall()


@asynccontextmanager
async def rows_of(
    connection: Connection, name: str, parameters: tuple[Any, ...]
) -> AsyncGenerator[AsyncServerCursor[tuple[Any, ...]]]:
    """Yields a server-side cursor: all rows may not fit into memory. The transaction is open until the block ends."""
    async with connection.transaction(), connection.cursor(name=name) as cursor:
        await cursor.execute(statement(name), parameters)
        yield cursor


async def put_keys_and_dead_letters(
    connection: Connection,
    restoration: StoreRestore,
    retention: Retention,
    owner: PartitionOwner = OWNS_ALL,
    page_count: int = FETCH_COUNT,
) -> None:
    """Restores all keys and dead letters that may be looked up in this partition. A surplus key does no harm."""
    narrowed = (owner.id_bytes,) * 2
    kept = (retention.idempotency_ttl_ms, *narrowed, *owner.key_filter)
    async with rows_of(connection, "kept_keys", kept) as cursor:
        while keys := await cursor.fetchmany(page_count):
            await restoration.put_keys([_kept_key(row, retention.idempotency_ttl_ms) for row in keys])
    async with rows_of(connection, "dead_ids", (retention.dead_letter_ttl_ms, *narrowed)) as cursor:
        while dead := await cursor.fetchmany(page_count):
            own = await owner.select_owned([task_id for task_id, _ in dead])
            await restoration.put_dead_letters({task_id: died_ms for task_id, died_ms in dead if task_id in own})


async def restore_tasks(connection: Connection, restoration: StoreRestore, rows: Sequence[tuple[Any, ...]]) -> None:
    """Restores tasks from rows of `live_tasks` or `some_tasks`, with the errors of their earlier attempts."""
    await _put(connection, restoration, _batch_of(rows))


async def _put(connection: Connection, restoration: StoreRestore, batch: RestoreBatch) -> None:
    if batch.skipped:
        columns = [list(column) for column in zip(*batch.skipped, strict=True)]
        await connection.execute(statement("park_tasks"), (restoration.partition, *columns))
        log.error("tasks not restored: their rows are unreadable and were parked", count=len(batch.skipped))
    if not batch.tasks:
        return
    await restoration.put_tasks(batch.tasks)
    if batch.failed_ids:
        errors: dict[str, dict[int, bytes]] = {}
        found = await connection.execute(statement("attempt_errors"), (batch.failed_ids,))
        for task_id, attempt, error in await found.fetchall():
            errors.setdefault(task_id, {})[attempt] = error.encode()
        await restoration.put_errors(errors)


async def _read(cursor: AsyncServerCursor[tuple[Any, ...]]) -> RestoreBatch:
    return _batch_of(await cursor.fetchmany(FETCH_COUNT))


def _batch_of(rows: Sequence[tuple[Any, ...]]) -> RestoreBatch:
    batch = RestoreBatch([], [task_id for task_id, *_, has_error in rows if has_error], [])
    for task_id, task_type, parameters, attributes, text, _ in rows:
        record = packed_record(text)
        try:
            checked_record(record)
            stored = stored_definition(task_type, parameters.encode(), attributes)
        except ValueError as error:
            log.error("task not restored: its row is unreadable and was parked", task_id=task_id, problem=str(error))
            batch.skipped.append(SkippedTask(task_id, record, str(error)))
        else:
            batch.tasks.append(RestoredTask(task_id, record, stored.packed, stored.definition.signature))
    return batch


def _kept_key(row: tuple[Any, ...], ttl_ms: int) -> KeptKey:
    task_id, idempotency, created_ms = row
    name, _, fingerprint = idempotency.partition(" ")
    return KeptKey(name, f"{task_id} {fingerprint}", created_ms + ttl_ms)


def _slices(rows: list[T], size: int = 1_000) -> list[list[T]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
