"""Tasks with parked events, as of their last parked event: their rows in history are older.

Danger: a task restored from its row, whose result is parked, would be executed again.
"""

from typing import NamedTuple

import structlog

from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import StoredDefinition, definitions_in_history, unpack
from tideq.queue_core.scripts.record import Record, readable_record
from tideq.queue_core.store.restore import RestoredTask
from tideq.queue_core.task_id import is_task_id

log = structlog.get_logger(__name__)


class ParkedSnapshot(NamedTuple):
    record: Record
    restored: RestoredTask


async def parked_tasks(connection: Connection, partition: int) -> list[ParkedSnapshot]:
    """Returns the tasks of a partition that can be restored; logs those without a readable record or definition."""
    found = await connection.execute(statement("parked_versions"), (partition,))
    rows = [row for row in await found.fetchall() if is_task_id(row[0])]
    without = [task_id for task_id, _, definition in rows if definition is None]
    definitions = await definitions_in_history(connection, without)
    tasks: list[ParkedSnapshot] = []
    for task_id, record, definition in rows:
        stored = _unpacked(definition) if definition is not None else definitions.get(task_id)
        read = readable_record(record)
        if stored is None or read is None:
            log.error("task with parked events not restored: its record or definition is unreadable", task_id=task_id)
        else:
            restored = RestoredTask(task_id, record, stored.packed, stored.definition.signature)
            tasks.append(ParkedSnapshot(read, restored))
    return tasks


def _unpacked(definition: bytes) -> StoredDefinition | None:
    try:
        return StoredDefinition(unpack(definition), definition)
    except ValueError:
        return None
