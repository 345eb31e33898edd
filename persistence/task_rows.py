"""Rows of `tasks` as the domain's tasks, and as what `retry` and `replay` take of a task the store has forgotten."""

from typing import NamedTuple

from tideq.persistence.definitions import joined, packed, packed_record
from tideq.queue_core.engine.queue import KeptTask
from tideq.queue_core.engine.record import parse_record
from tideq.queue_core.engine.views import task_of
from tideq.queue_core.task import Task


class TaskRow(NamedTuple):
    """The columns that every query for whole tasks begins with, in this order."""

    task_id: str
    now_ms: int
    """PostgreSQL's clock, for ages shown to people."""
    task_type: str
    parameters: str
    attributes: str
    record: str
    result: str | None
    error: str | None

    def task(self, errors: tuple[bytes, ...] | None = None) -> Task:
        """With the latest error only, unless all are given."""
        known = (self.error.encode(),) if self.error else ()
        return task_of(
            self.task_id,
            self.now_ms,
            parse_record(packed_record(self.record)),
            joined(self.task_type, self.parameters.encode(), self.attributes),
            None if self.result is None else self.result.encode(),
            known if errors is None else errors,
        )

    def kept(self) -> KeptTask:
        definition = packed(self.task_type, self.parameters.encode(), self.attributes)
        return KeptTask(packed_record(self.record), definition)
