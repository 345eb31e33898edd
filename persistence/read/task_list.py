"""Lists and searches tasks: any combination of filters, newest first, in pages.

Limits: a page may be short or empty and still have a next one, if the search ran out of time. Lists show the state in
history, which is behind the queue by the replication lag.
"""

import time
import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

from tideq.persistence.database import Connection, Database
from tideq.persistence.read.cursors import CursorError, make_cursor, read_cursor
from tideq.persistence.read.filters import IdRange, TaskFilter
from tideq.persistence.read.search import plan_search, spans_of
from tideq.persistence.read.tasks import SMALL_BYTES, TaskRow, fetch_large_rows
from tideq.queue_core.task import Task

MAX_LIMIT = 500
DEFAULT_LIMIT = 50
PAGE_SIZES = (DEFAULT_LIMIT, MAX_LIMIT)
"""Queries have one of these limits as a literal: the planner uses it, and few statements are prepared."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
MAX_COUNT = 10_000
SEARCH_SECONDS = 2.0


class TaskPage(NamedTuple):
    tasks: list[Task]
    next_cursor: str | None


class Count(NamedTuple):
    total: int
    is_exact: bool
    """If False, `total` is a lower bound."""


class TaskList:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: TaskFilter, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> TaskPage:
        """Returns the newest tasks before the cursor. Raises CursorError for a cursor of another list."""
        ids = _after(wanted, cursor)
        async with self._database.reading() as connection:
            rows, rest = await _read_rows(connection, wanted, ids, limit + 1)
            whole = await fetch_large_rows(connection, rows[:limit], MAX_PAGE_BYTES)
        if len(whole) < len(rows):
            rest = uuid.UUID(whole[-1].task_id)
        tasks = [task for row in whole if (task := row.task()) is not None]
        return TaskPage(tasks, make_cursor(wanted.scope(), rest.bytes) if rest else None)

    async def count(self, wanted: TaskFilter) -> Count:
        """Returns an exact count if at most MAX_COUNT rows had to be read for each key, else a lower bound."""
        ids = wanted.id_range()
        async with self._database.reading() as connection:
            search = await plan_search(connection, wanted, ids)
            ((total, is_exact),) = await search.run(connection, "count_tasks", ids, MAX_COUNT)
        return Count(total, is_exact)

    async def ids(self, wanted: TaskFilter, batch_size: int) -> AsyncIterator[list[str]]:
        """Yields the ids of all matching tasks in batches. A task that changes meanwhile occurs at most once."""
        async with self._database.reading() as connection:
            search = await plan_search(connection, wanted, wanted.id_range())
        for span in spans_of(wanted, wanted.id_range()):
            below, is_full = span.below, True
            while is_full:
                async with self._database.reading() as connection:
                    rows = await search.run(connection, "list_ids", IdRange(span.first, below), batch_size)
                is_full = len(rows) == batch_size
                if rows:
                    below = uuid.UUID(rows[-1][0])
                    yield [task_id for (task_id,) in rows]


async def _read_rows(
    connection: Connection, wanted: TaskFilter, ids: IdRange, count: int
) -> tuple[list[TaskRow], uuid.UUID | None]:
    """Returns up to `count` rows, and the id at which to continue if the time ran out before.

    Each span chooses its own index scan: a value that is rare lately may be frequent long ago.
    """
    rows: list[TaskRow] = []
    size = next(size for size in PAGE_SIZES if count <= size + 1) + 1
    deadline = time.monotonic() + SEARCH_SECONDS
    for span in spans_of(wanted, ids):
        search = await plan_search(connection, wanted, span)
        found = await search.run(connection, "list_tasks", span, size, small_bytes=SMALL_BYTES)
        rows += [TaskRow(*row) for row in found]
        if len(rows) >= count:
            break
        if time.monotonic() > deadline:
            return rows, span.first
    return rows[:count], None


def _after(wanted: TaskFilter, cursor: str | None) -> IdRange:
    ids = wanted.id_range()
    if not cursor:
        return ids
    position = read_cursor(wanted.scope(), cursor)
    if len(position) != 16:
        raise CursorError("the cursor is not valid: pass next_cursor of the previous page unchanged")
    return IdRange(ids.first, min(ids.below, uuid.UUID(bytes=position)))
