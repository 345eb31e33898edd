"""Lists and counts dead letters, and groups them by pattern. `replay.py` replays them.

Dead letters older than their TTL are not listed, even if history still has them.
"""

import functools
import uuid
from collections.abc import Sequence
from typing import Any, LiteralString, NamedTuple

import msgspec
from psycopg import sql

from tideq.persistence.database import Connection, Database, compose, statement
from tideq.persistence.read.cursors import CursorError, make_cursor, read_cursor
from tideq.persistence.read.filters import LAST_ID, LATEST_MS, timestamp_of
from tideq.persistence.read.task_list import DEFAULT_LIMIT, MAX_PAGE_BYTES, PAGE_SIZES
from tideq.persistence.read.tasks import SMALL_BYTES, TaskRow, fetch_large_rows
from tideq.persistence.settings import DAY_MS
from tideq.queue_core.task import Task

MAX_PATTERNS = 1_000
NEW_WITHIN_MS = DAY_MS
DEATH_COLUMNS = 4
FIRST_ID = uuid.UUID(int=0)

WANTED: LiteralString = """
    CASE WHEN
        (%(pattern)s::text IS NULL OR pattern = %(pattern)s)
        AND (%(task_type)s::text IS NULL OR task_type = %(task_type)s)
        AND (%(reason)s::text IS NULL OR reason = %(reason)s)
    THEN true END IS NOT NULL"""
WITHIN: LiteralString = """
    ({columns}died_at, task_id) > ({values}
        coalesce(%(after_at)s::timestamptz, now() - %(ttl_ms)s * interval '1 millisecond'), %(after_id)s::uuid)
    AND ({columns}died_at, task_id) < ({values}%(below_at)s::timestamptz, %(below_id)s::uuid)"""
"""The range of one index; the other conditions stay outside of it, as in `index_scan.py`."""


class DeadLetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """All given conditions must hold."""

    task_type: str | None = None
    reason: str | None = None
    pattern: str | None = None
    before_ms: int | None = None
    """Deaths before this instant."""

    def scope(self) -> bytes:
        return b"dead" + msgspec.json.encode(self)

    def column(self) -> str:
        """Returns the most selective column: a pattern has one type and reason, and types outnumber reasons."""
        return next((name for name in ("pattern", "task_type", "reason") if getattr(self, name) is not None), "")


class Death(NamedTuple):
    """A position in the order of deaths."""

    died_ms: int
    task_id: uuid.UUID

    def packed(self) -> bytes:
        return self.died_ms.to_bytes(8) + self.task_id.bytes


class DeadLetter(NamedTuple):
    task: Task
    died_ms: int
    pattern: str
    message: str
    retriable: bool


class Pattern(NamedTuple):
    pattern: str
    task_type: str
    reason: str
    message: str
    dead_count: int
    first_seen_ms: int
    last_seen_ms: int
    retriable_count: int
    is_new: bool


class DeadLetterPage(NamedTuple):
    dead_letters: list[DeadLetter]
    next_cursor: str | None


class DeadLetters:
    def __init__(self, database: Database, ttl_ms: int) -> None:
        self._database = database
        self._ttl_ms = ttl_ms

    async def page(
        self, wanted: DeadLetterFilter, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> DeadLetterPage:
        """Returns the latest deaths first. Raises CursorError for a cursor of another list."""
        below = _position(wanted, cursor) or Death(_end_ms(wanted), FIRST_ID)
        size = next(size for size in PAGE_SIZES if limit <= size) + 1
        async with self._database.reading() as connection:
            query = _query_text("list_dead_letters", wanted.column(), size, "DESC")
            rows = await self._rows(connection, query, wanted, below=below)
            tasks = [TaskRow(*row[DEATH_COLUMNS:]) for row in rows[:limit]]
            whole = await fetch_large_rows(connection, tasks, MAX_PAGE_BYTES)
        deaths = [(each.task(), *row[:DEATH_COLUMNS]) for each, row in zip(whole, rows, strict=False)]
        found = [DeadLetter(task, *death) for task, *death in deaths if task is not None]
        if len(whole) == len(rows):
            return DeadLetterPage(found, None)
        last = Death(rows[len(whole) - 1][0], uuid.UUID(whole[-1].task_id))
        return DeadLetterPage(found, make_cursor(wanted.scope(), last.packed()))

    async def count(self, wanted: DeadLetterFilter) -> tuple[int, int | None]:
        """Returns how many dead letters match, and when the last of them died."""
        async with self._database.reading() as connection:
            query = _query_text("count_dead_letters", wanted.column(), 0, "ASC")
            ((count, last_ms),) = await self._rows(connection, query, wanted)
        return count, last_ms

    async def next_deaths(self, wanted: DeadLetterFilter, after: Death | None, last_ms: int, limit: int) -> list[Death]:
        """Returns the earliest deaths after one, up to and including an instant."""
        async with self._database.reading() as connection:
            query = _query_text("next_dead_letters", wanted.column(), limit, "ASC")
            rows = await self._rows(connection, query, wanted, after=after, below=Death(last_ms, LAST_ID))
        return [Death(died_ms, uuid.UUID(task_id)) for task_id, died_ms in rows]

    async def patterns(self) -> list[Pattern]:
        parameters = {"ttl_ms": self._ttl_ms, "new_within_ms": NEW_WITHIN_MS, "limit": MAX_PATTERNS}
        async with self._database.reading() as connection:
            found = await connection.execute(statement("dead_letter_patterns"), parameters, prepare=True)
            return [Pattern(*row) for row in await found.fetchall()]

    async def _rows(
        self,
        connection: Connection,
        query: LiteralString,
        wanted: DeadLetterFilter,
        after: Death | None = None,
        below: Death | None = None,
    ) -> Sequence[tuple[Any, ...]]:
        below = below or Death(_end_ms(wanted), FIRST_ID)
        parameters: dict[str, Any] = {
            "pattern": wanted.pattern,
            "task_type": wanted.task_type,
            "reason": wanted.reason,
            "after_at": timestamp_of(after.died_ms) if after else None,
            "after_id": after.task_id if after else FIRST_ID,
            "ttl_ms": self._ttl_ms,
            "below_at": timestamp_of(below.died_ms),
            "below_id": below.task_id,
            "small_bytes": SMALL_BYTES,
        }
        return await (await connection.execute(query, parameters, prepare=True)).fetchall()


def _position(wanted: DeadLetterFilter, cursor: str | None) -> Death | None:
    if not cursor:
        return None
    position = read_cursor(wanted.scope(), cursor)
    if len(position) != 24:
        raise CursorError("the cursor is not valid: pass next_cursor of the previous page unchanged")
    return Death(int.from_bytes(position[:8]), uuid.UUID(bytes=position[8:]))


def _end_ms(wanted: DeadLetterFilter) -> int:
    return LATEST_MS if wanted.before_ms is None else wanted.before_ms


@functools.cache
def _query_text(query: str, column: str, limit: int, direction: LiteralString) -> LiteralString:
    columns = [sql.Identifier(column)] if column else []
    ordered = [*columns, sql.SQL("died_at"), sql.SQL("task_id")]
    return compose(
        query,
        within=sql.SQL(WITHIN).format(
            columns=sql.SQL("").join(sql.SQL("{}, ").format(each) for each in columns),
            values=sql.SQL("").join(sql.SQL("{}, ").format(sql.Placeholder(column)) for _ in columns),
        ),
        wanted=sql.SQL(WANTED),
        order=sql.SQL(", ").join(sql.SQL("{} " + direction).format(each) for each in ordered),
        limit=sql.Literal(limit),
    )
