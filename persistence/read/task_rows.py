"""Rows of `tasks` as the domain's tasks, and as what `retry` and `replay` take of a task the store has forgotten."""

from collections.abc import Sequence
from typing import NamedTuple

import structlog

from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import NOTHING, joined, packed, packed_record
from tideq.queue_core.queue import KeptTask
from tideq.queue_core.scripts.record import record_fields
from tideq.queue_core.scripts.task_view import task_of
from tideq.queue_core.task import Definition, Task

log = structlog.get_logger(__name__)

SMALL_BYTES = 16 * 1024
"""Tasks that are larger come into a page one by one."""


class TaskRow(NamedTuple):
    """The columns that every query for whole tasks ends with, in this order."""

    task_id: str
    now_ms: int
    """PostgreSQL's clock, for ages shown to people."""
    task_type: str
    parameters: str | None
    """None where the task is too large to come with others."""
    attributes: str
    record: str
    result: str | None
    error: str | None
    error_count: int = 0
    """How many of its attempts failed; not asked for where nobody is shown it."""

    @property
    def size(self) -> int:
        return sum(len(text) for text in (self.parameters, self.result, self.error) if text is not None)

    def task(self, errors: tuple[bytes, ...] | None = None) -> Task | None:
        """With the latest error only, unless all are given; None where this version cannot read the row."""
        try:
            return self._task(errors)
        except ValueError as error:
            log.warning("task not read from history", task_id=self.task_id, problem=str(error))
            return None

    def _task(self, errors: tuple[bytes, ...] | None) -> Task:
        known = (self.error.encode(),) if self.error else ()
        return task_of(
            self.task_id,
            self.now_ms,
            record_fields(self.record, "\x1f"),
            _definition(self.task_type, (self.parameters or "").encode(), self.attributes),
            None if self.result is None else self.result.encode(),
            known if errors is None else errors,
            self.error_count,
        )

    def kept(self) -> KeptTask | None:
        """None where its definition cannot be read; whether the record can be is the script's to say."""
        try:
            definition = packed(self.task_type, (self.parameters or "").encode(), self.attributes)
        except ValueError as error:
            log.warning("task not taken from history", task_id=self.task_id, problem=str(error))
            return None
        return KeptTask(packed_record(self.record), definition)


async def whole_rows(connection: Connection, rows: Sequence[TaskRow], max_bytes: int) -> list[TaskRow]:
    """With what was left out for its size; fewer rows where that becomes too much."""
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
    """Most tasks have nothing but a type and parameters."""
    return Definition(task_type, parameters) if attributes == PLAIN else joined(task_type, parameters, attributes)


PLAIN = NOTHING.decode()
