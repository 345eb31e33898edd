"""Reads one task of history: its latest state, every transition, and the error of every attempt."""

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import structlog

from tideq.persistence.database import Connection, Database, statement, stay_in_transaction
from tideq.persistence.definitions import NO_ATTRIBUTES, definition_of_columns, packed_of_columns, packed_record
from tideq.queue_core.errors import TaskUnreadable
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.scripts.record import record_fields
from tideq.queue_core.scripts.task_view import task_of
from tideq.queue_core.task import Definition, Task
from tideq.queue_core.task_id import is_task_id

KEPT_ERRORS = 20
"""The same limit as in the store."""
SMALL_BYTES = 16 * 1024
"""Larger tasks are fetched one by one."""
PLAIN = NO_ATTRIBUTES.decode()

log = structlog.get_logger(__name__)


class TransitionRow(NamedTuple):
    version: int
    at_ms: int
    state: str
    reason: str
    attempt: int
    worker_id: str | None
    error: str | None


class TaskRow(NamedTuple):
    """The last columns of every query for whole tasks, in this order."""

    task_id: str
    now_ms: int
    """PostgreSQL's clock, for ages shown to people."""
    task_type: str
    parameters: str | None
    """None where the task is too large to be fetched with others."""
    attributes: str
    record: str
    result: str | None
    error: str | None
    error_count: int = 0
    """How many attempts failed; 0 in queries whose callers do not show it."""

    @property
    def size(self) -> int:
        return sum(len(text) for text in (self.parameters, self.result, self.error) if text is not None)

    def task(self, errors: tuple[bytes, ...] | None = None) -> Task | None:
        """Returns the task, with the latest error only unless `errors` is given; None for an unreadable row."""
        try:
            return self._task(errors)
        except ValueError as error:
            log.warning("task not read from history", task_id=self.task_id, problem=str(error))
            return None

    def _task(self, errors: tuple[bytes, ...] | None) -> Task:
        latest = (self.error.encode(),) if self.error else ()
        return task_of(
            self.task_id,
            self.now_ms,
            record_fields(self.record, "\x1f"),
            _definition(self.task_type, (self.parameters or "").encode(), self.attributes),
            None if self.result is None else self.result.encode(),
            latest if errors is None else errors,
            self.error_count,
        )

    def kept_task(self) -> KeptTask | None:
        """Returns None where the definition cannot be read. The script checks the record."""
        try:
            definition = packed_of_columns(self.task_type, (self.parameters or "").encode(), self.attributes)
        except ValueError as error:
            log.warning("task not taken from history", task_id=self.task_id, problem=str(error))
            return None
        return KeptTask(packed_record(self.record), definition)


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


async def fetch_large_rows(connection: Connection, rows: Sequence[TaskRow], max_bytes: int) -> list[TaskRow]:
    """Returns the rows with the large ones fetched in full; stops after the row that reaches `max_bytes`."""
    whole: list[TaskRow] = []
    for row in rows:
        if row.parameters is None:
            found = await connection.execute(statement("find_tasks"), ([row.task_id],), prepare=True)
            row = TaskRow(*(await found.fetchall() or [row])[0])
            max_bytes -= row.size
        whole.append(row)
        if max_bytes <= 0:
            break
    return whole


def _definition(task_type: str, parameters: bytes, attributes: str) -> Definition:
    """Short cut: most tasks have only a type and parameters."""
    return (
        Definition(task_type, parameters)
        if attributes == PLAIN
        else definition_of_columns(task_type, parameters, attributes)
    )
