"""Writes batches: rows and checkpoint in one transaction. Events that PostgreSQL refuses are parked.

A refused batch is halved until the refused event is alone. The event is skipped if history has it already, else it is
parked, with all later events of the task: the history of a task must not have gaps.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
import structlog
from psycopg.types.string import BytesBinaryDumper

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import Connection, statement
from tideq.persistence.dead_letters.patterns import by_pattern
from tideq.persistence.definitions import unpack
from tideq.persistence.replication.batch import Batch
from tideq.persistence.replication.rows import (
    EVENTS,
    PURGED,
    ROW_ERRORS,
    STAGED,
    TASKS,
    TERMS,
    Change,
    CopyTarget,
    Row,
    Rows,
)
from tideq.persistence.schema.partitions import TABLES, remove_from
from tideq.persistence.tombstones import PurgedTask, Tombstone, add_tombstones, purged_tasks
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.scripts.record import fields_reader
from tideq.queue_core.task_id import is_task_id

EVENT_ERRORS = (*ROW_ERRORS, psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)
"""Errors caused by the event itself: the event is parked. Any other error is retried."""
BY_KEY = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off"
"""Forces joins of staged rows with tasks by primary key: the planner has no statistics of staged rows, and another plan
would read all tasks. The connection keeps its plan however the tables grow."""
MAX_STAGED = 20_000
version_and_creation = fields_reader("version", "created_ms")
FindDefinitions = Callable[[Sequence[bytes]], Awaitable[dict[bytes, bytes]]]

log = structlog.get_logger(__name__)


class BatchCancelled(HistoryUnavailable):
    """The database cancelled the batch at its time limit: a smaller one may succeed."""


class Writer:
    def __init__(
        self, connection: Connection, checkpoints: Checkpoints, partition: int, find_definitions: FindDefinitions
    ) -> None:
        self._connection = connection
        self._checkpoints = checkpoints
        self._partition = partition
        self._find_definitions = find_definitions
        self.parked: set[bytes] = set()
        self._staged_count = 0
        """Rows staged since the staging table was last truncated."""

    async def prepare(self) -> None:
        await self._connection.execute(statement("stage"))
        await self._connection.execute(BY_KEY)
        found = await self._connection.execute(
            "SELECT DISTINCT task_id FROM parked_events WHERE partition = %s", (self._partition,)
        )
        self.parked = {task_id.encode() for (task_id,) in await found.fetchall()}

    async def write(self, batch: Batch, before: Checkpoint) -> Checkpoint:
        """Returns the checkpoint after the batch. Raises CheckpointMoved, and BatchCancelled at the time limit."""
        after = batch.checkpoint_after(before)
        try:
            await self._write(batch, before, after)
        except psycopg.errors.QueryCanceled as error:
            raise BatchCancelled(f"a batch of {len(batch.changes)} events was cancelled: {error}") from error
        return after

    async def _write(self, batch: Batch, before: Checkpoint, after: Checkpoint) -> None:
        async with self._connection.transaction():
            await self._checkpoints.move(self._connection, before, after)
            batch = await self._without_purged(batch, after.epoch)
            behind = await self._after_parked(batch.changes) if self.parked else []
            for change in behind:
                await self._park(change, batch.definitions, "an earlier event of this task is parked")
            if behind:
                rest = [change for change in batch.changes if change.task_id not in self.parked]
                await self._write_or_halve(rest, batch.definitions)
            else:
                await self._write_or_halve(batch.changes, batch.definitions, batch.rows)

    async def _without_purged(self, batch: Batch, epoch: int) -> Batch:
        """Drops changes that an old primary made after the task was purged elsewhere: these are of an older epoch.

        Entries are in the order of their epochs, so the check of the first is enough.
        """
        if not batch.changes or batch.changes[0].epoch == epoch:
            return batch
        purged = await self._purged(batch.changes)
        kept = [each for each in batch.changes if each.task_id not in purged or each.readable_reason == PURGED]
        return batch if len(kept) == len(batch.changes) else batch._replace(changes=kept, rows=None)

    async def _purged(self, changes: Iterable[Change]) -> set[bytes]:
        """Returns the tasks whose changes belong to a life of the task that was purged."""
        by_id = {change.printable_id: change for change in changes}
        purged = await purged_tasks(self._connection, [task_id for task_id in by_id if is_task_id(task_id)])
        return {by_id[each].task_id for each, life in purged.items() if _is_same_life(by_id[each], life)}

    async def write_again(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        """Writes parked events of a task, in the transaction that removed them. Refused events are parked again."""
        self.parked.difference_update(change.task_id for change in changes)
        await self._write_or_halve(changes, definitions)

    async def _after_parked(self, changes: Sequence[Change]) -> list[Change]:
        """Returns the changes of tasks with parked events, and drops resolved tasks from `parked`."""
        candidates = {change.task_id for change in changes} & self.parked
        if candidates:
            ids = [change.printable_id for change in changes if change.task_id in candidates]
            found = await self._connection.execute(statement("still_parked"), (self._partition, ids))
            self.parked -= candidates - {task_id.encode() for (task_id,) in await found.fetchall()}
        return [change for change in changes if change.task_id in self.parked]

    async def _write_or_halve(
        self, changes: Sequence[Change], definitions: Mapping[bytes, bytes], rows: Rows | None = None
    ) -> None:
        if not changes:
            return
        try:
            async with self._connection.transaction():
                await self._apply(rows or Rows().add(changes), definitions)
        except psycopg.errors.CheckViolation as error:
            # Partition bounds are the only checks: the partition was made just now, and the retry will use it.
            raise HistoryUnavailable(str(error)) from error
        except psycopg.errors.QueryCanceled:
            # The reader makes smaller batches; a single stream entry can only be split here.
            if len(changes) == 1 or changes[0].entry_id != changes[-1].entry_id:
                raise
            await self._write_halves(changes, definitions)
        except EVENT_ERRORS as error:
            if len(changes) > 1:
                await self._write_halves(changes, definitions)
            elif not await self._has_event(changes[0]):
                await self._park(changes[0], definitions, str(error))

    async def _write_halves(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        middle = len(changes) // 2
        await self._write_or_halve(changes[:middle], definitions)
        later = [change for change in changes[middle:] if change.task_id not in self.parked]
        for change in changes[middle:]:
            if change.task_id in self.parked:
                await self._park(change, definitions, "an earlier event of this task is parked")
        await self._write_or_halve(later, definitions)

    async def backfill(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        """Writes the state of tasks without their events. Tasks that PostgreSQL refuses are logged and left out.

        A page whose statement is cancelled is halved: as a whole it would be cancelled again.
        """
        if not changes:
            return
        try:
            async with self._connection.transaction():
                rows = Rows().add_snapshot(changes)
                await self._change(rows)
                await self._add_terms(rows.snapshot_terms(definitions))
                if rows.deaths:
                    await self._add_dead_letters(rows, definitions)
        except psycopg.errors.QueryCanceled:
            if len(changes) == 1:
                raise
            await self._backfill_halves(changes, definitions)
        except EVENT_ERRORS as error:
            if len(changes) == 1:
                log.error("task not backfilled", task_id=changes[0].printable_id, problem=str(error))
            else:
                await self._backfill_halves(changes, definitions)

    async def _backfill_halves(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        middle = len(changes) // 2
        await self.backfill(changes[:middle], definitions)
        await self.backfill(changes[middle:], definitions)

    async def _add_terms(self, terms: Sequence[tuple[str, str]]) -> None:
        if terms:
            await self._connection.execute(statement("add_terms"), _columns(terms))

    async def _has_event(self, change: Change) -> bool:
        """Returns whether history has this event: after a restore from a backup the stream is read again."""
        if not is_task_id(change.printable_id):
            return False
        found = await self._connection.execute(
            statement("has_event"), (change.printable_id, change.epoch, change.readable_version, change.now_ms)
        )
        row = await found.fetchone()
        return bool(row and row[0])

    async def _park(self, change: Change, definitions: Mapping[bytes, bytes], problem: str) -> None:
        self.parked.add(change.task_id)
        task_id, version = change.printable_id, change.readable_version
        log.error("event parked", task_id=task_id, version=version, problem=problem)
        position = (self._partition, change.epoch, change.entry_id, change.now_ms)
        values = (task_id, version, change.packed, change.body, definitions.get(change.task_id), problem)
        await self._connection.execute(statement("park"), (*position, *values))

    async def _apply(self, rows: Rows, definitions: Mapping[bytes, bytes]) -> None:
        await self._purge(rows)
        if rows.created:
            await copy_rows(self._connection, TASKS, rows.new_task_rows(definitions))
        if rows.events:
            await copy_rows(self._connection, EVENTS, rows.event_rows())
        await self._change(rows)
        if terms := rows.new_term_rows(definitions):
            await copy_rows(self._connection, TERMS, terms)
        await self._add_terms(rows.later_terms())
        if rows.requeued:
            await self._remove(rows.requeued, "dead_letter_tasks")
        if rows.deaths:
            await self._add_dead_letters(rows, definitions)

    async def _purge(self, rows: Rows) -> None:
        if rows.purged:
            await self._remove(rows.purged, *TABLES)
            await add_tombstones(self._connection, [_tombstone(change) for change in rows.purged.values()])

    async def _remove(self, task_ids: Iterable[bytes], *tables: str) -> None:
        ids = [task_id.decode() for task_id in task_ids]
        for table in tables:
            await self._connection.execute(remove_from(table), (ids,))

    async def _change(self, rows: Rows) -> None:
        """Deletes staged rows instead of truncating, which costs 4 ms a batch for a new file and a new plan.

        The table is truncated after MAX_STAGED rows: temporary tables are not vacuumed.
        """
        changed = rows.changed()
        if not changed:
            return
        await copy_rows(self._connection, STAGED, rows.changed_rows())
        applied = await self._connection.execute(statement("apply_staged"))
        if applied.rowcount < len(changed):
            await self._add_missing(rows)
        self._staged_count += len(changed)
        is_large = self._staged_count > MAX_STAGED
        await self._connection.execute("TRUNCATE staged" if is_large else "DELETE FROM staged")
        self._staged_count = 0 if is_large else self._staged_count

    async def _add_missing(self, rows: Rows) -> None:
        """Writes tasks again, from the store, whose rows a clean-up removed while they were requeued.

        A task that the store does not have either was purged; its purge event follows.
        """
        found = await self._connection.execute(statement("staged_without_task"))
        missing = {task_id.encode() for (task_id,) in await found.fetchall()}
        purged = await self._purged(rows.latest[task_id] for task_id in missing)
        await self._remove(purged, *TABLES)
        definitions = await self._find_definitions([task_id for task_id in missing if task_id not in purged])
        if definitions:
            await copy_rows(self._connection, TASKS, rows.task_rows(definitions))

    async def _add_dead_letters(self, rows: Rows, definitions: Mapping[bytes, bytes]) -> None:
        types = {death.task_id: unpack(definitions[death.task_id]).task_type for death in rows.deaths}
        deaths = rows.dead_letters(types)
        dead = {letter.task_id: letter for letter in deaths if rows.is_dead(letter.task_id)}
        await self._connection.execute(statement("count_patterns"), _columns(by_pattern(deaths)))
        if dead:
            await self._connection.execute(statement("add_dead_letters"), _columns(list(dead.values())))


async def copy_rows(connection: Connection, target: CopyTarget, rows: Iterable[Row]) -> None:
    """Copies in the binary format: PostgreSQL reads no texts of instants, numbers and ids (docs/history.md)."""
    async with connection.cursor() as cursor:
        cursor.adapters.register_dumper(bytes, BytesBinaryDumper)
        async with cursor.copy(target.statement) as copy:
            copy.set_types(target.types)
            for row in rows:
                await copy.write_row(row)


def _is_same_life(change: Change, life: PurgedTask) -> bool:
    created_ms = change.readable_created_ms
    return created_ms is not None and created_ms <= life.created_ms


def _tombstone(purge: Change) -> Tombstone:
    version, created_ms = version_and_creation(purge.packed)
    return Tombstone(purge.task_id.decode(), purge.epoch, int(version), int(created_ms))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
