"""Table partitions: ranges of task ids, which are ranges of time. They are made ahead, and dropped when they are old.

A partition with a live task, or with a dead letter within its TTL, is not dropped. The default partition holds the ids
outside all ranges. It is never dropped; its old tasks are removed one by one.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import structlog
from psycopg import Rollback, sql

from tideq.persistence.database import (
    REPAIRING,
    WRITING,
    Connection,
    Database,
    HistoryBusy,
    TookTooLong,
    statement,
)
from tideq.persistence.schema.clocks import Clocks, StoreInstants, database_now_ms
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.transitions import TERMINAL

DEPENDENTS = ("task_events", "task_terms", "dead_letter_tasks")
TABLES = ("tasks", *DEPENDENTS)
AHEAD = 2
LOCK = 7_305_002
MOVED_ROWS, MAX_PARTS = 500_000, 64
"""The first limits the rows of the largest table that leave the default partition at once, which takes seconds. The
second limits the partitions that a range is divided into, because every list opens them all."""
MAX_SECONDS = 60.0
"""The limit for making or dropping a partition, in case the database hangs."""
LOCKED_SHORTLY = "SET LOCAL lock_timeout = '200ms'; SET LOCAL enable_seqscan = off"
"""All sessions queue behind the lock request. Queries under the lock must use an index."""
PAGE_SIZE = 1_000
"""Tasks of the default partition that one transaction checks and perhaps removes."""
BUSY_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between attempts, while other sessions have locks on the table."""

log = structlog.get_logger(__name__)


class Range(NamedTuple):
    """A time range in Unix milliseconds, the end excluded."""

    start_ms: int
    end_ms: int

    @property
    def suffix(self) -> str:
        return f"{self.start_ms}_{self.end_ms}"


def remove_from(table: str) -> sql.Composed:
    """Returns a DELETE statement; its parameter is an array of ids."""
    return sql.SQL("DELETE FROM {} WHERE task_id = ANY (%s::uuid[])").format(sql.Identifier(table))


def id_at(instant_ms: int) -> uuid.UUID:
    """Returns the lowest id of a millisecond."""
    return uuid.UUID(int=min(max(instant_ms, 0), 2**48 - 1) << 80)


def instant_of(task_id: uuid.UUID) -> int:
    return task_id.int >> 80


class PartitionsBusy(HistoryUnavailable):
    """Other sessions kept their locks on the tables through all attempts."""


class PartitionsSlow(PartitionsBusy):
    """The change took too long while other sessions waited, and was rolled back."""


class Partitions:
    """Makes and drops partitions by PostgreSQL's clock, never by that of this process.

    Both need locks that block every session of history, also while the request only waits. So each request waits for
    0.2 s, and is repeated after a pause. `DETACH PARTITION CONCURRENTLY` would not block, but PostgreSQL supports it
    only for tables without a default partition.
    """

    def __init__(
        self,
        database: Database,
        settings: HistorySettings,
        max_seconds: float = MAX_SECONDS,
        waits: Sequence[float] = BUSY_WAITS,
        moved_rows: int = MOVED_ROWS,
    ) -> None:
        self._database = database
        self._settings = settings
        self._max_seconds = max_seconds
        self._waits = waits
        self._moved_rows = moved_rows

    async def make_ahead(self, now_ms: int | None = None) -> list[Range]:
        """Returns the partitions that were made, for the present and the near future of the database's clock.

        A partition that cannot be made does not stop the others; its HistoryUnavailable is raised at the end.
        """
        made: list[Range] = []
        refused: HistoryUnavailable | None = None
        for wanted in await self._missing(now_ms):
            try:
                made += await self._make_in_parts(wanted)
            except HistoryUnavailable as error:
                refused = error
        if refused:
            raise refused
        return made

    async def _make_in_parts(self, wanted: Range) -> list[Range]:
        """Pauses after each part for as long as it blocked other sessions."""
        try:
            parts = await self._parts(wanted)
        except HistoryBusy as error:
            raise PartitionsBusy(f"partitions not made, their tables stay locked: {error}") from error
        if len(parts) > 1:
            log.warning("partition made in parts: the default partition holds too many of its rows", count=len(parts))
        made: list[Range] = []
        for part in parts:
            began = time.monotonic()
            made += [part] if await self._locked(partial(_make, wanted=part)) else []
            if part != parts[-1]:
                await asyncio.sleep(time.monotonic() - began)
        return made

    async def _parts(self, wanted: Range) -> list[Range]:
        """Returns the range, or narrower ones, each with few enough rows in the default partition to move at once.

        The count may take long: it blocks no other session.
        """
        async with self._database.session(
            limits=REPAIRING._replace(lock_ms=round(self._max_seconds * 1000))
        ) as connection:
            counts = {table: await _count_left(connection, table, wanted) for table in TABLES}
            largest = max(TABLES, key=lambda table: counts[table])
            if counts[largest] <= self._moved_rows:
                return [wanted]
            size = max(self._moved_rows, counts[largest] // MAX_PARTS + 1)
            return divided(wanted, await _every(connection, largest, wanted, size))

    async def prune(self, clocks: Clocks, dead_letter_ttl_ms: int) -> list[Range]:
        """Drops partitions older than the retention; returns their ranges. Raises ClocksDiffer and drops nothing."""
        clocks.check()
        dropped: list[Range] = []
        died_after_ms = clocks.database_ms - dead_letter_ttl_ms
        for each in await self._old(clocks.database_ms - self._settings.retention_ms, died_after_ms):
            if await self._locked(partial(_drop, old=each, died_after_ms=died_after_ms)):
                dropped.append(each)
                log.info("partition dropped", start_ms=each.start_ms, end_ms=each.end_ms)
        await self._prune_default(clocks.database_ms - self._settings.retention_ms, died_after_ms)
        await self._delete_old(max(self._settings.retention_ms, dead_letter_ttl_ms))
        return dropped

    async def _prune_default(self, ended_before_ms: int, died_after_ms: int) -> None:
        """Removes old tasks of the default partition, by their end: their ids were chosen or made by a wrong clock."""
        wanted = {
            "ended_before_ms": ended_before_ms,
            "died_after_ms": died_after_ms,
            "states": sorted(TERMINAL),
            "page_size": PAGE_SIZE,
        }
        after: uuid.UUID | None = uuid.UUID(int=0)
        count = 0
        while after is not None:
            async with self._session() as connection, connection.transaction():
                found = await connection.execute(statement("prune_default"), {**wanted, "after": after})
                ((after, removed),) = await found.fetchall()
                for table in DEPENDENTS if removed else ():
                    await connection.execute(remove_from(table), (removed,))
            count += len(removed)
        if count:
            log.info("default partition pruned", task_count=count)

    async def _delete_old(self, pattern_ttl_ms: int) -> None:
        """Deletes old rows of the tables that are not partitioned."""
        async with self._session() as connection:
            await connection.execute(statement("forget_tombstones"))
            await connection.execute(statement("forget_patterns"), (pattern_ttl_ms,))

    async def clocks(self, process_ms: int, store: StoreInstants | None = None) -> Clocks:
        store_ms = tuple(await store()) if store else ()
        async with self._session() as connection:
            return Clocks(await database_now_ms(connection), process_ms, store_ms)

    async def _missing(self, now_ms: int | None) -> list[Range]:
        async with self._session() as connection:
            now_ms = await database_now_ms(connection) if now_ms is None else now_ms
            return missing_ranges(await existing(connection), now_ms, self._settings.partition_ms)

    async def _old(self, ended_ms: int, died_after_ms: int) -> list[Range]:
        async with self._session() as connection:
            old = [each for each in await existing(connection) if each.end_ms <= ended_ms]
            return [each for each in old if not await _is_needed(connection, each, died_after_ms)]

    async def _locked(self, change: Callable[[Connection], Awaitable[bool]]) -> bool:
        """Returns the result of `change`, run in a transaction by one process at a time. Raises PartitionsBusy."""
        for wait in (*self._waits, None):
            try:
                async with self._session() as connection, connection.transaction():
                    await connection.execute(
                        "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK, self._database.schema)
                    )
                    await connection.execute(LOCKED_SHORTLY)
                    return await change(connection)
            except HistoryBusy as error:
                if wait is None:
                    raise PartitionsBusy(f"partitions not changed, their tables stay locked: {error}") from error
                await asyncio.sleep(wait)
            except TookTooLong as error:
                raise PartitionsSlow(f"partitions not changed, it took longer than the limit: {error}") from error
        raise AssertionError("the last wait is none")

    def _session(self) -> AbstractAsyncContextManager[Connection]:
        return self._database.session(self._max_seconds, WRITING)


def missing_ranges(present: list[Range], now_ms: int, width_ms: int) -> list[Range]:
    """Returns the ranges that are missing from now until AHEAD widths ahead.

    New ranges never overlap with existing ones, of whatever width, and leave no gap after a range that ended lately.
    """
    ended = [each.end_ms for each in present if 0 <= now_ms - each.end_ms <= width_ms]
    at_ms = max(ended, default=now_ms - now_ms % width_ms)
    missing: list[Range] = []
    while at_ms <= now_ms + AHEAD * width_ms:
        covering = next((each for each in present if each.start_ms <= at_ms < each.end_ms), None)
        if covering is None:
            next_ms = min((each.start_ms for each in present if each.start_ms > at_ms), default=at_ms + width_ms)
            covering = Range(at_ms, min(at_ms + width_ms, next_ms))
            missing.append(covering)
        at_ms = covering.end_ms
    return missing


def divided(whole: Range, instants: Iterable[int]) -> list[Range]:
    """Returns the parts of a range that begin at these instants."""
    inside = {each for each in instants if whole.start_ms < each < whole.end_ms}
    return [Range(*each) for each in pairwise([whole.start_ms, *sorted(inside), whole.end_ms])]


async def existing(connection: Connection) -> list[Range]:
    rows = await (await connection.execute(statement("partitions"))).fetchall()
    return sorted(Range(*map(int, name.removeprefix("tasks_").split("_"))) for (name,) in rows)


async def _count_left(connection: Connection, table: str, wanted: Range) -> int:
    """Returns the number of rows of the range in the default partition."""
    query = sql.SQL("SELECT count(*) FROM {} WHERE task_id >= %(start)s AND task_id < %(end)s")
    found = await connection.execute(query.format(sql.Identifier(f"{table}_default")), _bounds(wanted))
    ((count,),) = await found.fetchall()
    return count


async def _every(connection: Connection, table: str, wanted: Range, size: int) -> list[int]:
    """Returns the instant in every `size`-th id of the range in the default partition."""
    query = sql.SQL(
        "SELECT task_id FROM (SELECT task_id, row_number() OVER (ORDER BY task_id) - 1 AS number FROM {} "
        "WHERE task_id >= %(start)s AND task_id < %(end)s) AS numbered WHERE number > 0 AND number %% %(size)s = 0"
    )
    found = await connection.execute(
        query.format(sql.Identifier(f"{table}_default")), {**_bounds(wanted), "size": size}
    )
    return [instant_of(task_id) for (task_id,) in await found.fetchall()]


async def _make(connection: Connection, wanted: Range) -> bool:
    """Moves the range's rows out of the default partition first: PostgreSQL refuses a partition that overlaps them.

    Writers wait until the whole is done: an update that began before would not find a moved row.
    """
    async with connection.transaction():
        if any(each.start_ms < wanted.end_ms and wanted.start_ms < each.end_ms for each in await existing(connection)):
            return False
        bounds = {"start": sql.Literal(id_at(wanted.start_ms)), "end": sql.Literal(id_at(wanted.end_ms))}
        for step in (
            "CREATE TABLE {child} (LIKE {parent} INCLUDING ALL)",
            "LOCK TABLE ONLY {parent} IN SHARE ROW EXCLUSIVE MODE",
            "LOCK TABLE {rest} IN ACCESS EXCLUSIVE MODE",
            "WITH moved AS (DELETE FROM {rest} WHERE task_id >= {start} AND task_id < {end} RETURNING *) "
            "INSERT INTO {child} SELECT * FROM moved",
            "ALTER TABLE {parent} ATTACH PARTITION {child} FOR VALUES FROM ({start}) TO ({end})",
        ):
            for table in TABLES:
                names = {
                    "parent": sql.Identifier(table),
                    "rest": sql.Identifier(f"{table}_default"),
                    "child": sql.Identifier(f"{table}_{wanted.suffix}"),
                }
                await connection.execute(sql.SQL(step).format(**names, **bounds))
        return True


async def _drop(connection: Connection, old: Range, died_after_ms: int) -> bool:
    """Checks again under the lock that the partition is not needed: one of its tasks may have been requeued.

    Its ended tasks are counted before the exclusive locks are taken: the count blocks only writers of this partition.
    """
    if old not in await existing(connection):
        return False
    async with connection.transaction() as dropping:
        await connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(sql.Identifier(f"tasks_{old.suffix}")))
        await connection.execute(statement("add_dropped"), {**_bounds(old), "states": sorted(TERMINAL)})
        for table in TABLES:
            lock = sql.SQL("LOCK TABLE ONLY {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table))
            await connection.execute(lock)
        if await _is_needed(connection, old, died_after_ms):
            raise Rollback(dropping)
        for table in TABLES:
            await connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(f"{table}_{old.suffix}")))
        return True
    return False


async def _is_needed(connection: Connection, old: Range, died_after_ms: int) -> bool:
    bounds = {**_bounds(old), "died_after_ms": died_after_ms}
    row = await (await connection.execute(statement("partition_is_needed"), bounds)).fetchone()
    return bool(row and row[0])


def _bounds(of: Range) -> dict[str, uuid.UUID]:
    return {"start": id_at(of.start_ms), "end": id_at(of.end_ms)}
