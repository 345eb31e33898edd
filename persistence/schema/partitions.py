"""Partitions: ranges of task ids, which are ranges of time. Made ahead, dropped whole when they are old.

A partition that still holds a live task, or a dead letter inside its time, is not dropped.
"""

import uuid
from typing import NamedTuple

import structlog
from psycopg import sql

from tideq.persistence.database import Connection, Database, statement
from tideq.persistence.settings import HistorySettings

TABLES = ("tasks", "task_events", "task_terms", "dead_letter_tasks")
AHEAD = 2
LOCK = 7_305_002
MAX_SECONDS = 60.0
"""For making or dropping partitions. Both lock tables: whoever cannot go on must not keep everyone else waiting."""

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


class Partitions:
    def __init__(self, database: Database, settings: HistorySettings, max_seconds: float = MAX_SECONDS) -> None:
        self._database = database
        self._settings = settings
        self._max_seconds = max_seconds

    async def make_ahead(self, now_ms: int) -> list[Range]:
        """So that what is written now and for a while has its place; returns what was made."""
        async with self._database.session(self._max_seconds) as connection:
            return await self._locked_make(connection, now_ms)

    async def prune(self, now_ms: int, dead_letter_ttl_ms: int) -> list[Range]:
        """Drop what is older than history lasts; returns the ranges that went."""
        async with self._database.session(self._max_seconds) as connection, connection.transaction():
            await _lock(connection, self._database.schema)
            old = [r for r in await existing(connection) if r.end_ms <= now_ms - self._settings.retention_ms]
            dropped = [r for r in old if not await _is_needed(connection, r, now_ms - dead_letter_ttl_ms)]
            for each in dropped:
                await _drop(connection, each)
        for each in dropped:
            log.info("history dropped a partition", start_ms=each.start_ms, end_ms=each.end_ms)
        return dropped

    async def _locked_make(self, connection: Connection, now_ms: int) -> list[Range]:
        async with connection.transaction():
            await _lock(connection, self._database.schema)
            missing = missing_ranges(await existing(connection), now_ms, self._settings.partition_ms)
            for each in missing:
                await _make(connection, each)
        return missing


def missing_ranges(present: list[Range], now_ms: int, width_ms: int) -> list[Range]:
    """From the week of now on, without gaps or overlaps, whatever width earlier ranges had."""
    end = max((each.end_ms for each in present), default=now_ms - now_ms % width_ms)
    if end < now_ms - width_ms:
        end = now_ms - now_ms % width_ms
    missing: list[Range] = []
    while end <= now_ms + AHEAD * width_ms:
        missing.append(Range(end, end + width_ms))
        end += width_ms
    return missing


async def existing(connection: Connection) -> list[Range]:
    rows = await (await connection.execute(statement("partitions"))).fetchall()
    return sorted(Range(*map(int, name.removeprefix("tasks_").split("_"))) for (name,) in rows)


async def _lock(connection: Connection, schema: str) -> None:
    await connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (LOCK, schema))


async def _make(connection: Connection, wanted: Range) -> None:
    """What the default partition holds of the range moves first: no partition may be added over it."""
    bounds = (id_at(wanted.start_ms), id_at(wanted.end_ms))
    for table in TABLES:
        names = {
            "parent": sql.Identifier(table),
            "rest": sql.Identifier(f"{table}_default"),
            "child": sql.Identifier(f"{table}_{wanted.suffix}"),
            "start": sql.Literal(bounds[0]),
            "end": sql.Literal(bounds[1]),
        }
        for step in (
            "CREATE TABLE {child} (LIKE {parent} INCLUDING ALL)",
            "WITH moved AS (DELETE FROM {rest} WHERE task_id >= {start} AND task_id < {end} RETURNING *) "
            "INSERT INTO {child} SELECT * FROM moved",
            "ALTER TABLE {parent} ATTACH PARTITION {child} FOR VALUES FROM ({start}) TO ({end})",
        ):
            await connection.execute(sql.SQL(step).format(**names))


async def _is_needed(connection: Connection, old: Range, died_after_ms: int) -> bool:
    bounds = {"start": id_at(old.start_ms), "end": id_at(old.end_ms), "died_after_ms": died_after_ms}
    row = await (await connection.execute(statement("partition_is_needed"), bounds)).fetchone()
    return bool(row and row[0])


async def _drop(connection: Connection, old: Range) -> None:
    for table in TABLES:
        await connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(f"{table}_{old.suffix}")))
