"""Rows of `tasks` as the domain's tasks, and as input of `retry` and `replay` for tasks that the store has expired."""

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import NO_ATTRIBUTES, definition_of_columns, packed_of_columns, packed_record
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.scripts.record import record_fields
from tideq.queue_core.scripts.task_view import task_of
from tideq.queue_core.task import Definition, Task

log = structlog.get_logger(__name__)

SMALL_BYTES = 16 * 1024
"""Larger tasks are fetched one by one."""


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


PLAIN = NO_ATTRIBUTES.decode()
