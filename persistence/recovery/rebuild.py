"""Rebuild: every live task back where it was, from history into an empty store.

The store is closed while it lasts and opened by the last step, under a new epoch. Killed in between, it is simply run
again. What was acknowledged but not yet replicated when the store was lost is lost with it: that is the lag. A store
that still has something has it written to history first.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import structlog
from psycopg import AsyncServerCursor

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import kept, packed_record
from tideq.persistence.partition_owner import EVERYTHING, PartitionOwner
from tideq.persistence.recovery.context import RecoveryContext
from tideq.persistence.recovery.parked import parked_tasks
from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.outbox.consumer import FIRST_ID
from tideq.queue_core.scripts.record import checked_record
from tideq.queue_core.settings import Retention
from tideq.queue_core.store.restore import KeptKey, RestoredTask, StoreRestore, StoreStatus

FETCH_COUNT = 500
LIVE = ["queued", "assigned", "executing"]

log = structlog.get_logger(__name__)

T = TypeVar("T")
Progress = Callable[[int, int], None]
Drain = Callable[[Checkpoint], Awaitable[Checkpoint]]


class Plan(NamedTuple):
    """What a rebuild would put back."""

    live_by_state: dict[str, int]
    dead_letter_count: int
    key_count: int
    parked_count: int
    """Tasks with parked events, which are put back as those tell."""

    @property
    def live_count(self) -> int:
        return sum(self.live_by_state.values())


class SkippedTask(NamedTuple):
    """A task whose row cannot be read, which history keeps for who can."""

    task_id: str
    record: bytes
    problem: str


class Returning(NamedTuple):
    """Tasks as the store will have them, which of them had errors, and those that cannot come back."""

    tasks: list[RestoredTask]
    failed_ids: list[str]
    left_out: list[SkippedTask]

    @property
    def row_count(self) -> int:
        return len(self.tasks) + len(self.left_out)


class Rebuild:
    """`drain` writes what the closed store has beyond a checkpoint; `on_progress` is told how many tasks are back."""

    def __init__(self, ground: RecoveryContext, drain: Drain, on_progress: Progress) -> None:
        self._connection, self._restoration, self._checkpoints, self._settings, self._belonging = ground
        self._drain = drain
        self._on_progress = on_progress

    async def plan(self) -> Plan:
        live = dict(await self._rows("live_counts", (LIVE, *(self._belonging.bytes,) * 2)))
        retention = self._settings.retention
        spans = (retention.dead_letter_ttl_ms, retention.idempotency_ttl_ms)
        ((dead, keys, parked),) = await self._rows("other_counts", (*spans, self._settings.partition))
        return Plan(live, dead, keys, parked)

    async def run(self, facts: StoreStatus, checkpoint: Checkpoint) -> str:
        """Whatever the store has now is replaced; returns the epoch it is opened under."""
        epoch = max(checkpoint.epoch, int(facts.epoch) if facts.is_usable else 0) + 1
        sealed = await self._restoration.close(facts, checkpoint.now_ms)
        checkpoint = await self._drain(checkpoint)
        await self._checkpoints.enter_epoch(
            self._connection, Checkpoint(epoch, FIRST_ID, checkpoint.now_ms, checkpoint.event_count)
        )
        await self._restoration.wipe()
        await self._put_tasks((await self.plan()).live_count)
        await self._put_parked()
        await self._put_rest()
        await self._restoration.enter(sealed, str(epoch), checkpoint.now_ms)
        return str(epoch)

    async def _put_tasks(self, total: int) -> None:
        """While one batch is being put back the next is being read: half of the time is the store's."""
        done = 0
        async with rows_of(self._connection, "live_tasks", (LIVE, *(self._belonging.bytes,) * 2)) as cursor:
            reading = asyncio.create_task(_read(cursor))
            try:
                while (returning := await reading).row_count:
                    reading = asyncio.create_task(_read(cursor))
                    await _put(self._connection, self._restoration, await self._own(returning))
                    done += returning.row_count
                    self._on_progress(done, total)
            finally:
                await cancel_and_wait(reading)

    async def _put_parked(self) -> None:
        """After the others, because history has rows of some of them too, which are older."""
        for tasks in _slices(await parked_tasks(self._connection, self._settings.partition)):
            await self._restoration.put_tasks([task.restored for task in tasks])

    async def _own(self, returning: Returning) -> Returning:
        own = await self._belonging.own([each.task_id for each in (*returning.tasks, *returning.left_out)])
        return Returning(
            [task for task in returning.tasks if task.task_id in own],
            [task_id for task_id in returning.failed_ids if task_id in own],
            [each for each in returning.left_out if each.task_id in own],
        )

    async def _put_rest(self) -> None:
        """Keys first: nobody can submit yet, and whoever repeats a submission later must meet its key."""
        await put_keys_and_dead_letters(self._connection, self._restoration, self._settings.retention, self._belonging)
        belongings = dict(await self._rows("belongings", (self._settings.partition,)))
        due_ms = await self._restoration.now_ms() + self._settings.leases.heartbeat_timeout_ms
        await self._restoration.put_side_data(belongings, due_ms)

    async def _rows(self, name: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Few, whatever the queue's size."""
        return await (await self._connection.execute(statement(name), parameters)).fetchall()


@asynccontextmanager
async def rows_of(
    connection: Connection, name: str, parameters: tuple[Any, ...]
) -> AsyncGenerator[AsyncServerCursor[tuple[Any, ...]]]:
    """A statement's rows, to be fetched in pages: all of them may not fit into memory. A transaction lasts as long."""
    async with connection.transaction(), connection.cursor(name=name) as cursor:
        await cursor.execute(statement(name), parameters)
        yield cursor


async def put_keys_and_dead_letters(
    connection: Connection,
    restoration: StoreRestore,
    retention: Retention,
    belonging: PartitionOwner = EVERYTHING,
    page_count: int = FETCH_COUNT,
) -> None:
    """Of several partitions each takes all keys that may be looked for there: one too many does no harm."""
    narrowed = (belonging.bytes,) * 2
    kept = (retention.idempotency_ttl_ms, *narrowed, *belonging.keys)
    async with rows_of(connection, "kept_keys", kept) as cursor:
        while keys := await cursor.fetchmany(page_count):
            await restoration.put_keys([_kept_key(row, retention.idempotency_ttl_ms) for row in keys])
    async with rows_of(connection, "dead_ids", (retention.dead_letter_ttl_ms, *narrowed)) as cursor:
        while dead := await cursor.fetchmany(page_count):
            own = await belonging.own([task_id for task_id, _ in dead])
            await restoration.put_dead_letters({task_id: died_ms for task_id, died_ms in dead if task_id in own})


async def put_back(connection: Connection, restoration: StoreRestore, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows of `live_tasks` or `some_tasks`: tasks, and what their earlier attempts failed with."""
    await _put(connection, restoration, _returning(rows))


async def _put(connection: Connection, restoration: StoreRestore, returning: Returning) -> None:
    if returning.left_out:
        columns = [list(column) for column in zip(*returning.left_out, strict=True)]
        await connection.execute(statement("park_tasks"), (restoration.partition, *columns))
        log.error("tasks not restored: their rows cannot be read, and are parked", count=len(returning.left_out))
    if not returning.tasks:
        return
    await restoration.put_tasks(returning.tasks)
    if returning.failed_ids:
        errors: dict[str, dict[int, bytes]] = {}
        found = await connection.execute(statement("attempt_errors"), (returning.failed_ids,))
        for task_id, attempt, error in await found.fetchall():
            errors.setdefault(task_id, {})[attempt] = error.encode()
        await restoration.put_errors(errors)


async def _read(cursor: AsyncServerCursor[tuple[Any, ...]]) -> Returning:
    return _returning(await cursor.fetchmany(FETCH_COUNT))


def _returning(rows: Sequence[tuple[Any, ...]]) -> Returning:
    returning = Returning([], [task_id for task_id, *_, has_error in rows if has_error], [])
    for task_id, task_type, parameters, attributes, text, _ in rows:
        record = packed_record(text)
        try:
            checked_record(record)
            known = kept(task_type, parameters.encode(), attributes)
        except ValueError as error:
            log.error("task not restored: history keeps it, and parked it", task_id=task_id, problem=str(error))
            returning.left_out.append(SkippedTask(task_id, record, str(error)))
        else:
            returning.tasks.append(RestoredTask(task_id, record, known.packed, known.definition.signature))
    return returning


def _kept_key(row: tuple[Any, ...], ttl_ms: int) -> KeptKey:
    task_id, idempotency, created_ms = row
    name, _, fingerprint = idempotency.partition(" ")
    return KeptKey(name, f"{task_id} {fingerprint}", created_ms + ttl_ms)


def _slices(rows: list[T], size: int = 1_000) -> list[list[T]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
