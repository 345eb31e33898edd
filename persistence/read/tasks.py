"""Reads one task of history: its latest state, every transition, and the error of every attempt."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

from tideq.persistence.database import Connection, Database, statement, stay_in_transaction
from tideq.persistence.read.task_rows import TaskRow
from tideq.queue_core.errors import TaskUnreadable
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.task import Task
from tideq.queue_core.task_id import is_task_id

KEPT_ERRORS = 20
"""The same limit as in the store."""


class TransitionRow(NamedTuple):
    version: int
    at_ms: int
    state: str
    reason: str
    attempt: int
    worker_id: str | None
    error: str | None


class TaskReader:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, task_id: str) -> Task | None:
        """Returns the task with the errors of its last attempts. Raises TaskUnreadable for a row of a later version."""
        if not is_task_id(task_id):
            return None
        async with self._database.reading() as connection:
            rows = await _fetch(connection, "find_task", (KEPT_ERRORS, task_id))
        return _with_errors(*rows[0]) if rows else None

    async def find_many(self, task_ids: Sequence[str]) -> dict[str, Task]:
        """Returns those of these tasks that history has, by id, each with its latest error."""
        async with self._database.reading() as connection:
            rows = await _fetch(connection, "find_tasks", (list(task_ids),))
        return {row[0]: task for row in rows if (task := TaskRow(*row).task()) is not None}

    async def transitions(self, task_id: str) -> list[TransitionRow]:
        """Returns the transitions in their order of epoch and version."""
        async with self._database.reading() as connection:
            return [TransitionRow(*row) for row in await _fetch(connection, "transitions", (task_id,))]

    @contextlib.asynccontextmanager
    async def locked(self, task_id: str) -> AsyncGenerator[KeptTask | None]:
        """Yields what a retry or replay needs, and locks the row against removal until the block ends."""
        if not is_task_id(task_id):
            yield None
            return
        async with self._database.reading() as connection, connection.transaction():
            locked = await lock_tasks(connection, [task_id])
            yield locked.get(task_id)


async def lock_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, KeptTask]:
    """Locks rows until the connection's transaction ends. Only removals wait; replication continues."""
    await stay_in_transaction(connection)
    rows = await _fetch(connection, "lock_tasks", (list(task_ids),))
    return {row[0]: kept for row in rows if (kept := TaskRow(*row).kept_task()) is not None}


def _with_errors(errors: list[str] | None, *row: Any) -> Task:
    task = TaskRow(*row).task(tuple(error.encode() for error in errors or ()))
    if task is None:
        raise TaskUnreadable(row[0])
    return task


async def _fetch(connection: Connection, name: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement(name), parameters, prepare=True)).fetchall()
