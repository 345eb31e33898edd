"""Partitions: ranges of task ids, which are ranges of time. Made ahead, dropped whole when they are old.

A partition that still holds a live task, or a dead letter inside its time, is not dropped. The default one holds what
lies in no range, and is never dropped: tasks of it go one by one.
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
    MENDING,
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
"""Rows of the largest table that leave the default partition at once, in seconds; and into how many partitions a range
is divided at most, because every list opens them all."""
MAX_SECONDS = 60.0
"""For making or dropping one: a database that hangs is given up."""
LOCKED_SHORTLY = "SET LOCAL lock_timeout = '200ms'; SET LOCAL enable_seqscan = off"
"""Everybody waits behind it, and what is looked for while a lock is held is looked for by an index."""
PAGE_SIZE = 1_000
"""Tasks of the default partition that are looked at, and may go, in one transaction."""
BUSY_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds from one try to the next, where somebody else has what must be locked."""

log = structlog.get_logger(__name__)


class Range(NamedTuple):
    """Of instants, the end excluded."""

    start_ms: int
    end_ms: int

    @property
    def suffix(self) -> str:
        return f"{self.start_ms}_{self.end_ms}"


def remove_from(table: str) -> sql.Composed:
    """Takes an array of ids."""
    return sql.SQL("DELETE FROM {} WHERE task_id = ANY (%s::uuid[])").format(sql.Identifier(table))


def id_at(instant_ms: int) -> uuid.UUID:
    """The lowest id of a millisecond."""
    return uuid.UUID(int=min(max(instant_ms, 0), 2**48 - 1) << 80)


def instant_of(task_id: uuid.UUID) -> int:
    return task_id.int >> 80


class PartitionsBusy(HistoryUnavailable):
    """Somebody reads or writes history for longer than others should wait behind."""


class PartitionsSlow(PartitionsBusy):
    """Everybody waited for longer than they should, and in vain: it was undone."""


class Partitions:
    """Made and dropped by PostgreSQL's clock, whatever that of this process says.

    Both lock tables that everybody uses, and whoever waits for such a lock has everybody else wait behind. So a lock is
    waited for shortly, then left to those who had it, and tried again a little later. `DETACH PARTITION CONCURRENTLY`
    would not wait like that, but PostgreSQL has it only for tables without a default partition.
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
        """So that what is written now and for a while has its place; returns what was made.

        By the database's clock, unless rows of another time are wanted. What cannot be made does not keep the others.
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
        """Between two parts others get as much time as they had to wait."""
        try:
            parts = await self._parts(wanted)
        except HistoryBusy as error:
            raise PartitionsBusy(f"partitions wait until history is less busy: {error}") from error
        if len(parts) > 1:
            log.warning("partition made in parts: the default partition holds too much of it", count=len(parts))
        made: list[Range] = []
        for part in parts:
            began = time.monotonic()
            made += [part] if await self._locked(partial(_make, wanted=part)) else []
            if part != parts[-1]:
                await asyncio.sleep(time.monotonic() - began)
        return made

    async def _parts(self, wanted: Range) -> list[Range]:
        """The range, or narrower ones, each with as much of the default partition as moves while others wait.

        Counting takes as long as it takes: nobody waits for it.
        """
        async with self._database.session(
            limits=MENDING._replace(lock_ms=round(self._max_seconds * 1000))
        ) as connection:
            counts = {table: await _count_left(connection, table, wanted) for table in TABLES}
            largest = max(TABLES, key=lambda table: counts[table])
            if counts[largest] <= self._moved_rows:
                return [wanted]
            size = max(self._moved_rows, counts[largest] // MAX_PARTS + 1)
            return divided(wanted, await _every(connection, largest, wanted, size))

    async def prune(self, clocks: Clocks, dead_letter_ttl_ms: int) -> list[Range]:
        """Drop what is older than history lasts; returns the ranges that went. Raises ClocksDiffer first."""
        clocks.check()
        dropped: list[Range] = []
        died_after_ms = clocks.database_ms - dead_letter_ttl_ms
        for each in await self._old(clocks.database_ms - self._settings.retention_ms, died_after_ms):
            if await self._locked(partial(_drop, old=each, died_after_ms=died_after_ms)):
                dropped.append(each)
                log.info("partition dropped", start_ms=each.start_ms, end_ms=each.end_ms)
        await self._prune_default(clocks.database_ms - self._settings.retention_ms, died_after_ms)
        await self._forget(max(self._settings.retention_ms, dead_letter_ttl_ms))
        return dropped

    async def _prune_default(self, ended_before_ms: int, died_after_ms: int) -> None:
        """What lies in it has ids that somebody chose, or made by a wrong clock: no time of theirs is ever over."""
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
                ((after, gone),) = await found.fetchall()
                for table in DEPENDENTS if gone else ():
                    await connection.execute(remove_from(table), (gone,))
            count += len(gone)
        if count:
            log.info("default partition pruned", task_count=count)

    async def _forget(self, pattern_ttl_ms: int) -> None:
        """What lies in no partition and would only grow."""
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
        """One process at a time. Whatever cannot be locked at once is tried again, later and later."""
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
                    raise PartitionsBusy(f"partitions wait until history is less busy: {error}") from error
                await asyncio.sleep(wait)
            except TookTooLong as error:
                raise PartitionsSlow(f"a partition was not made or dropped, which took too long: {error}") from error
        raise AssertionError("the last wait is none")

    def _session(self) -> AbstractAsyncContextManager[Connection]:
        return self._database.session(self._max_seconds, WRITING)


def missing_ranges(present: list[Range], now_ms: int, width_ms: int) -> list[Range]:
    """For every instant from now on, for a while, that has no place, whatever lies in the future.

    Without overlaps, whatever width earlier ranges had, and without a gap behind one that ended just now.
    """
    ended = [each.end_ms for each in present if 0 <= now_ms - each.end_ms <= width_ms]
    at_ms = max(ended, default=now_ms - now_ms % width_ms)
    missing: list[Range] = []
    while at_ms <= now_ms + AHEAD * width_ms:
        place = next((each for each in present if each.start_ms <= at_ms < each.end_ms), None)
        if place is None:
            next_ms = min((each.start_ms for each in present if each.start_ms > at_ms), default=at_ms + width_ms)
            place = Range(at_ms, min(at_ms + width_ms, next_ms))
            missing.append(place)
        at_ms = place.end_ms
    return missing


def divided(whole: Range, instants: Iterable[int]) -> list[Range]:
    """Its parts, which begin at these instants."""
    inside = {each for each in instants if whole.start_ms < each < whole.end_ms}
    return [Range(*each) for each in pairwise([whole.start_ms, *sorted(inside), whole.end_ms])]


async def existing(connection: Connection) -> list[Range]:
    rows = await (await connection.execute(statement("partitions"))).fetchall()
    return sorted(Range(*map(int, name.removeprefix("tasks_").split("_"))) for (name,) in rows)


async def _count_left(connection: Connection, table: str, wanted: Range) -> int:
    """Rows of the range in the default partition."""
    query = sql.SQL("SELECT count(*) FROM {} WHERE task_id >= %(start)s AND task_id < %(end)s")
    found = await connection.execute(query.format(sql.Identifier(f"{table}_default")), _bounds(wanted))
    ((count,),) = await found.fetchall()
    return count


async def _every(connection: Connection, table: str, wanted: Range, size: int) -> list[int]:
    """When each task was created that so many rows lie before, or twice as many, and so on."""
    query = sql.SQL(
        "SELECT task_id FROM (SELECT task_id, row_number() OVER (ORDER BY task_id) - 1 AS number FROM {} "
        "WHERE task_id >= %(start)s AND task_id < %(end)s) AS numbered WHERE number > 0 AND number %% %(size)s = 0"
    )
    found = await connection.execute(
        query.format(sql.Identifier(f"{table}_default")), {**_bounds(wanted), "size": size}
    )
    return [instant_of(task_id) for (task_id,) in await found.fetchall()]


async def _make(connection: Connection, wanted: Range) -> bool:
    """What the default partition holds of the range moves first: no partition may be added over it.

    Whoever changes a row that moves must know of its new place before they look for it, so writers wait for the whole.
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
    """Asked once more when nobody can write: a task of it may have been revived just now.

    What ended in it is counted before everybody has to wait; only those wait so long who would write to it.
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
