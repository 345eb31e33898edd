"""Tasks with parked events, as the store last told of them: history's own rows of them stop before that.

Put back by what its rows say, a task whose result was parked would be executed again.
"""

from typing import NamedTuple

import structlog

from tideq.persistence.database import Connection, statement
from tideq.persistence.definitions import Kept, kept_definitions, unpack
from tideq.queue_core.scripts.record import Record, readable_record
from tideq.queue_core.store.restore import RestoredTask
from tideq.queue_core.task_id import is_task_id

log = structlog.get_logger(__name__)


class ParkedSnapshot(NamedTuple):
    record: Record
    restored: RestoredTask


async def parked_tasks(connection: Connection, partition: int) -> list[ParkedSnapshot]:
    """Those that can be put back. Whoever cannot is told of: nobody knows any more what the task was to do."""
    found = await connection.execute(statement("parked_standings"), (partition,))
    rows = [row for row in await found.fetchall() if is_task_id(row[0])]
    definitions = await _definitions(connection, [task_id for task_id, _, definition in rows if definition is None])
    tasks: list[ParkedSnapshot] = []
    for task_id, record, definition in rows:
        known = _readable(definition) if definition is not None else definitions.get(task_id)
        read = readable_record(record)
        if known is None or read is None:
            log.error("a task with parked events cannot be put back", task_id=task_id)
        else:
            restored = RestoredTask(task_id, record, known.packed, known.definition.signature)
            tasks.append(ParkedSnapshot(read, restored))
    return tasks


async def _definitions(connection: Connection, task_ids: list[str]) -> dict[str, Kept]:
    rows = await (await connection.execute(statement("some_tasks"), (task_ids,))).fetchall()
    return kept_definitions(rows)


def _readable(definition: bytes) -> Kept | None:
    try:
        return Kept(unpack(definition), definition)
    except ValueError:
        return None
