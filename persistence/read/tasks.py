"""One task as history has it: where it ended up, every transition on the way, every attempt's error."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

from tideq.persistence.database import Connection, Database, statement, stay_in_transaction
from tideq.persistence.read.task_rows import TaskRow
from tideq.queue_core.errors import TaskUnreadable
from tideq.queue_core.queue import KeptTask
from tideq.queue_core.task import Task
from tideq.queue_core.task_id import is_task_id

KEPT_ERRORS = 20
"""As many as the store keeps of one task."""


class TransitionRow(NamedTuple):
    """One step of a task's way."""

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
        """With the errors of its last attempts. Raises TaskUnreadable for a row that this version cannot read."""
        if not is_task_id(task_id):
            return None
        async with self._database.reading() as connection:
            rows = await _fetch(connection, "find_task", (KEPT_ERRORS, task_id))
        return _with_errors(*rows[0]) if rows else None

    async def find_many(self, task_ids: Sequence[str]) -> dict[str, Task]:
        """Those of these tasks that history has, by id, each with its latest error."""
        async with self._database.reading() as connection:
            rows = await _fetch(connection, "find_tasks", (list(task_ids),))
        return {row[0]: task for row in rows if (task := TaskRow(*row).task()) is not None}

    async def transitions(self, task_id: str) -> list[TransitionRow]:
        """In the order they happened."""
        async with self._database.reading() as connection:
            return [TransitionRow(*row) for row in await _fetch(connection, "transitions", (task_id,))]

    @contextlib.asynccontextmanager
    async def holding(self, task_id: str) -> AsyncGenerator[KeptTask | None]:
        """What is needed to revive it, and its row kept from being cleaned away meanwhile."""
        if not is_task_id(task_id):
            yield None
            return
        async with self._database.reading() as connection, connection.transaction():
            held = await lock_tasks(connection, [task_id])
            yield held.get(task_id)


async def lock_tasks(connection: Connection, task_ids: Sequence[str]) -> dict[str, KeptTask]:
    """Until the end of the connection's transaction. Replication goes on: only removal waits."""
    await stay_in_transaction(connection)
    rows = await _fetch(connection, "hold_tasks", (list(task_ids),))
    return {row[0]: known for row in rows if (known := TaskRow(*row).kept()) is not None}


def _with_errors(errors: list[str] | None, *row: Any) -> Task:
    task = TaskRow(*row).task(tuple(error.encode() for error in errors or ()))
    if task is None:
        raise TaskUnreadable(row[0])
    return task


async def _fetch(connection: Connection, name: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement(name), parameters, prepare=True)).fetchall()
