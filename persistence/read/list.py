"""Listing and searching tasks: any filters together, newest first, a page at a time.

Does not promise full pages: one may be short, even empty, and still have a next one, where much had to be looked
through. Lists tasks as history knows them, which is behind the queue by the replicator's lag.
"""

import time
import uuid
from collections.abc import AsyncIterator
from typing import NamedTuple

from tideq.persistence.database import Connection, Database
from tideq.persistence.read.cursors import CursorError, make_cursor, read_cursor
from tideq.persistence.read.filters import IdRange, TaskFilter
from tideq.persistence.read.search import begin_search, spans_of
from tideq.persistence.read.task_rows import SMALL_BYTES, TaskRow, whole_rows
from tideq.queue_core.task import Task

MAX_LIMIT = 500
DEFAULT_LIMIT = 50
PAGE_SIZES = (DEFAULT_LIMIT, MAX_LIMIT)
"""Queries are written for these: the planner should know the limit, and few need be prepared."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
MAX_COUNT = 10_000
SEARCH_SECONDS = 2.0


class TaskPage(NamedTuple):
    tasks: list[Task]
    next_cursor: str | None


class Count(NamedTuple):
    total: int
    is_exact: bool
    """Otherwise there are at least so many."""


class TaskList:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: TaskFilter, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> TaskPage:
        """Raises CursorError for a cursor that is not of this list."""
        ids = _after(wanted, cursor)
        async with self._database.reading() as connection:
            rows, rest = await _look(connection, wanted, ids, limit + 1)
            whole = await whole_rows(connection, rows[:limit], MAX_PAGE_BYTES)
        if len(whole) < len(rows):
            rest = uuid.UUID(whole[-1].task_id)
        tasks = [task for row in whole if (task := row.task()) is not None]
        return TaskPage(tasks, make_cursor(wanted.scope(), rest.bytes) if rest else None)

    async def count(self, wanted: TaskFilter) -> Count:
        """Exact if no more than ten thousand had to be looked at: history is never read from end to end for it."""
        ids = wanted.id_range()
        async with self._database.reading() as connection:
            search = await begin_search(connection, wanted, ids)
            ((total, is_exact),) = await search.ask(connection, "count_tasks", ids, MAX_COUNT)
        return Count(total, is_exact)

    async def ids(self, wanted: TaskFilter, batch_size: int) -> AsyncIterator[list[str]]:
        """All of them, a batch at a time. What changes meanwhile is met once or not at all."""
        async with self._database.reading() as connection:
            search = await begin_search(connection, wanted, wanted.id_range())
        for span in spans_of(wanted, wanted.id_range()):
            below, is_full = span.below, True
            while is_full:
                async with self._database.reading() as connection:
                    rows = await search.ask(connection, "list_ids", IdRange(span.first, below), batch_size)
                is_full = len(rows) == batch_size
                if rows:
                    below = uuid.UUID(rows[-1][0])
                    yield [task_id for (task_id,) in rows]


async def _look(
    connection: Connection, wanted: TaskFilter, ids: IdRange, count: int
) -> tuple[list[TaskRow], uuid.UUID | None]:
    """Up to so many rows, and where to go on if the time was up before.

    What is rare lately may be common long ago, so every span has the best way in of its own.
    """
    rows: list[TaskRow] = []
    size = next(size for size in PAGE_SIZES if count <= size + 1) + 1
    deadline = time.monotonic() + SEARCH_SECONDS
    for span in spans_of(wanted, ids):
        search = await begin_search(connection, wanted, span)
        found = await search.ask(connection, "list_tasks", span, size, small_bytes=SMALL_BYTES)
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
        raise CursorError("this is no cursor of ours")
    return IdRange(ids.first, min(ids.below, uuid.UUID(bytes=position)))
