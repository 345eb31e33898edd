"""Writing batches: rows and checkpoint in one transaction, whatever it takes to get past an event that will not go in.

A batch that PostgreSQL refuses is halved until the event it refuses is alone. If history has it already it is passed
over, else it is parked, as are all that follow of the same task, because a history with a hole in it would lie.
"""

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, LiteralString, NamedTuple

import psycopg
import structlog

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import unpack
from tideq.persistence.replication.changes import CREATED, Change
from tideq.persistence.replication.copying import END, SIGNATURE
from tideq.persistence.replication.deaths import by_pattern
from tideq.persistence.replication.rows import EVENT_COLUMNS, PURGED, TASK_COLUMNS, MissingDefinition, Rows
from tideq.persistence.schema.partitions import TABLES, remove_from
from tideq.persistence.tombstones import PurgedLife, Tombstone, add_tombstones, purged_lives
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.task_id import is_task_id

REFUSALS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    MissingDefinition,
    ValueError,
    OverflowError,
    struct.error,
    LookupError,
)
"""What is the event's fault, and would happen again. Everything else is the database's, and is tried again."""
BY_KEY = "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off"
"""Staged rows meet their tasks by primary key: the planner knows nothing of what is staged, and any other plan would
read every task there is. Whatever it chooses is kept as long as the connection, however the tables grow."""
MAX_STAGED = 20_000
COPY_TASKS: LiteralString = f"COPY tasks ({TASK_COLUMNS}) FROM STDIN (FORMAT binary)"
COPY_EVENTS: LiteralString = f"COPY task_events ({EVENT_COLUMNS}) FROM STDIN (FORMAT binary)"
FindDefinitions = Callable[[Sequence[bytes]], Awaitable[dict[bytes, bytes]]]

log = structlog.get_logger(__name__)


class BatchCancelled(HistoryUnavailable):
    """The database gave it up: a smaller one may fit into its time."""


class Batch(NamedTuple):
    changes: Sequence[Change]
    definitions: Mapping[bytes, bytes]
    before: Checkpoint
    after: Checkpoint
    rows: Rows | None = None
    """What the changes come to, where somebody had the time to find out."""


class Writer:
    """One connection's worth of writing."""

    def __init__(
        self, connection: Connection, checkpoints: Checkpoints, partition: int, find_definitions: FindDefinitions
    ) -> None:
        self._connection = connection
        self._checkpoints = checkpoints
        self._partition = partition
        self._find_definitions = find_definitions
        self.parked: set[bytes] = set()
        self._staged_count = 0
        """Rows that the staging table has had since it was last truncated."""

    async def prepare(self) -> None:
        await self._connection.execute(statement("stage"))
        await self._connection.execute(BY_KEY)
        found = await self._connection.execute(
            "SELECT DISTINCT task_id FROM parked_events WHERE partition = %s", (self._partition,)
        )
        self.parked = {task_id.encode() for (task_id,) in await found.fetchall()}

    async def write(self, batch: Batch) -> None:
        try:
            await self._write(batch)
        except psycopg.errors.QueryCanceled as error:
            raise BatchCancelled(f"a batch of {len(batch.changes)} events was cancelled: {error}") from error

    async def _write(self, batch: Batch) -> None:
        async with self._connection.transaction():
            await self._checkpoints.move(self._connection, batch.before, batch.after)
            batch = await self._without_purged(batch)
            behind = await self._behind(batch.changes) if self.parked else []
            for change in behind:
                await self._park(change, batch.definitions, "an earlier event of this task is parked")
            if behind:
                rest = [change for change in batch.changes if change.task_id not in self.parked]
                await self._write_or_halve(rest, batch.definitions)
            else:
                await self._write_or_halve(batch.changes, batch.definitions, batch.rows)

    async def _without_purged(self, batch: Batch) -> Batch:
        """An entry of an older epoch may tell what an old primary did with a task after it was purged elsewhere.

        Entries are in the order of their epochs, so the first speaks for all.
        """
        if not batch.changes or batch.changes[0].epoch == batch.before.epoch:
            return batch
        purged = await self._purged(batch.changes)
        kept = [each for each in batch.changes if each.task_id not in purged or each.known_reason == PURGED]
        return batch if len(kept) == len(batch.changes) else batch._replace(changes=kept, rows=None)

    async def _purged(self, changes: Iterable[Change]) -> set[bytes]:
        """Tasks that these changes tell of a purged life of."""
        by_id = {change.task_name: change for change in changes}
        known = await purged_lives(self._connection, [task_id for task_id in by_id if is_task_id(task_id)])
        return {by_id[each].task_id for each, life in known.items() if _is_of(by_id[each], life)}

    async def write_again(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        """Events of a task that were parked, in the transaction that took them out. What fails again is parked anew."""
        self.parked.difference_update(change.task_id for change in changes)
        await self._write_or_halve(changes, definitions)

    async def _behind(self, changes: Sequence[Change]) -> list[Change]:
        """Changes of tasks with parked events. What is remembered of those may have been resolved since."""
        suspects = {change.task_id for change in changes} & self.parked
        if suspects:
            ids = [change.task_name for change in changes if change.task_id in suspects]
            found = await self._connection.execute(statement("still_parked"), (self._partition, ids))
            self.parked -= suspects - {task_id.encode() for (task_id,) in await found.fetchall()}
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
            # There is no other check than a partition's: it was made just now, and the next try goes to it.
            raise HistoryUnavailable(str(error)) from error
        except psycopg.errors.QueryCanceled:
            # A smaller batch is the reader's business; one entry of the stream can only be divided here.
            if len(changes) == 1 or changes[0].entry_id != changes[-1].entry_id:
                raise
            await self._write_halves(changes, definitions)
        except REFUSALS as error:
            if len(changes) > 1:
                await self._write_halves(changes, definitions)
            elif not await self._is_known(changes[0]):
                await self._park(changes[0], definitions, str(error))

    async def _write_halves(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        middle = len(changes) // 2
        await self._write_or_halve(changes[:middle], definitions)
        later = [change for change in changes[middle:] if change.task_id not in self.parked]
        for change in changes[middle:]:
            if change.task_id in self.parked:
                await self._park(change, definitions, "an earlier event of this task is parked")
        await self._write_or_halve(later, definitions)

    async def learn(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        """Tasks as they are, without the events that led there. Those that will not go in are told, and left out.

        A page that is cancelled is divided: whole it would be cancelled again.
        """
        if not changes:
            return
        try:
            async with self._connection.transaction():
                rows = Rows().know(changes)
                await self._change(rows)
                await self._add_terms(rows.known_terms(definitions))
                if rows.deaths:
                    await self._bury(rows, definitions)
        except psycopg.errors.QueryCanceled:
            if len(changes) == 1:
                raise
            await self._learn_halves(changes, definitions)
        except REFUSALS as error:
            if len(changes) == 1:
                log.error("history cannot hold a task", task_id=changes[0].task_name, problem=str(error))
            else:
                await self._learn_halves(changes, definitions)

    async def _learn_halves(self, changes: Sequence[Change], definitions: Mapping[bytes, bytes]) -> None:
        middle = len(changes) // 2
        await self.learn(changes[:middle], definitions)
        await self.learn(changes[middle:], definitions)

    async def _add_terms(self, terms: Sequence[tuple[str, str]]) -> None:
        if terms:
            await self._connection.execute(statement("add_terms"), _columns(terms))

    async def _is_known(self, change: Change) -> bool:
        """Whether history has this very event: a stream may be read anew, from before what a backup knew."""
        if not is_task_id(change.task_name):
            return False
        known = await self._connection.execute(
            statement("is_known"), (change.task_name, change.epoch, change.known_version, change.now_ms)
        )
        row = await known.fetchone()
        return bool(row and row[0])

    async def _park(self, change: Change, definitions: Mapping[bytes, bytes], problem: str) -> None:
        self.parked.add(change.task_id)
        task_id, version = change.task_name, change.known_version
        log.error("history parked an event", task_id=task_id, version=version, problem=problem)
        place = (self._partition, change.epoch, change.entry_id, change.now_ms)
        values = (task_id, version, change.packed, change.body, definitions.get(change.task_id), problem)
        await self._connection.execute(statement("park"), (*place, *values))

    async def _apply(self, rows: Rows, definitions: Mapping[bytes, bytes]) -> None:
        await self._purge(rows)
        if rows.born:
            await self._copy_binary(COPY_TASKS, rows.new_task_rows(definitions))
        if rows.events:
            await self._copy_binary(COPY_EVENTS, [rows.event_rows()])
        await self._change(rows)
        await self._copy("COPY task_terms FROM STDIN", rows.new_term_lines(definitions))
        await self._add_terms(rows.later_terms())
        if rows.revived:
            await self._remove(rows.revived, "dead_letter_tasks")
        if rows.deaths:
            await self._bury(rows, definitions)

    async def _purge(self, rows: Rows) -> None:
        if rows.purged:
            await self._remove(rows.purged, *TABLES)
            await add_tombstones(self._connection, [_tombstone(change) for change in rows.purged.values()])

    async def _remove(self, task_ids: Iterable[bytes], *tables: str) -> None:
        ids = [task_id.decode() for task_id in task_ids]
        for table in tables:
            await self._connection.execute(remove_from(table), (ids,))

    async def _change(self, rows: Rows) -> None:
        """What is staged is deleted: truncating makes a new file and has the update planned anew, 4 ms a batch.

        Nobody vacuums a temporary table, so now and then it is truncated all the same.
        """
        changed = rows.changed()
        if not changed:
            return
        await self._copy("COPY staged FROM STDIN", rows.changed_task_lines())
        applied = await self._connection.execute(statement("apply_staged"))
        if applied.rowcount < len(changed):
            await self._add_missing(rows)
        self._staged_count += len(changed)
        is_large = self._staged_count > MAX_STAGED
        await self._connection.execute("TRUNCATE staged" if is_large else "DELETE FROM staged")
        self._staged_count = 0 if is_large else self._staged_count

    async def _add_missing(self, rows: Rows) -> None:
        """A task whose row was cleaned away while it was being revived is written anew, from what the store has of it.

        One that the store does not have either was purged; the event of that is on its way.
        """
        found = await self._connection.execute(statement("staged_without_task"))
        missing = {task_id.encode() for (task_id,) in await found.fetchall()}
        purged = await self._purged(rows.latest[task_id] for task_id in missing)
        await self._remove(purged, *TABLES)
        definitions = await self._find_definitions([task_id for task_id in missing if task_id not in purged])
        if definitions:
            await self._copy_binary(COPY_TASKS, [rows.task_rows(definitions)])

    async def _bury(self, rows: Rows, definitions: Mapping[bytes, bytes]) -> None:
        types = {death.task_id: unpack(definitions[death.task_id]).task_type for death in rows.deaths}
        deaths = rows.dead_letters(types)
        dead = {letter.task_id: letter for letter in deaths if rows.is_dead(letter.task_id)}
        await self._connection.execute(statement("count_patterns"), _columns(by_pattern(deaths)))
        if dead:
            await self._connection.execute(statement("add_dead_letters"), _columns(list(dead.values())))

    async def _copy(self, copy: LiteralString, lines: bytes) -> None:
        if lines:
            async with self._connection.cursor() as cursor, cursor.copy(copy) as sink:
                await sink.write(lines)

    async def _copy_binary(self, copy: LiteralString, blocks: Iterable[bytes]) -> None:
        async with self._connection.cursor() as cursor, cursor.copy(copy) as sink:
            await sink.write(SIGNATURE)
            for block in blocks:
                await sink.write(block)
            await sink.write(END)


def _is_of(change: Change, life: PurgedLife) -> bool:
    created_ms = change.known_created_ms
    return created_ms is not None and created_ms <= life.created_ms


def _tombstone(purge: Change) -> Tombstone:
    return Tombstone(purge.task_id.decode(), purge.epoch, int(purge.version), int(purge.fields[CREATED]))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
