"""Parked events: lists the tasks that have them, and retries or discards them.

Each task is one transaction, and replicators of the partition wait for it. They write the task's later events again as
soon as it has no parked ones.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import WRITING, Connection, Database, statement
from tideq.persistence.definitions import definitions_in_history
from tideq.persistence.replication.batch import finished_tasks
from tideq.persistence.replication.rows import Change
from tideq.persistence.replication.writer import Writer
from tideq.queue_core.engine import Engine
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID, entry_order
from tideq.queue_core.partition import Partition

MAX_LISTED = 10_000

log = structlog.get_logger(__name__)


class ParkedTask(NamedTuple):
    task_id: str
    first_version: int
    last_version: int
    event_count: int
    parked_ms: int
    problem: str
    """The error of the first event; later events are parked because of it."""


class Parking:
    def __init__(self, database: Database, source: Partition, consumer: OutboxConsumer, partition: int) -> None:
        self._database = database
        self._source = source
        self._consumer = consumer
        self._partition = partition

    async def tasks(self, limit: int = MAX_LISTED) -> list[ParkedTask]:
        """Returns the tasks with parked events, the earliest first."""
        async with self._database.session(limits=WRITING) as connection:
            found = await connection.execute(statement("parked_tasks"), (self._partition, limit))
            return [ParkedTask(*row) for row in await found.fetchall()]

    async def retry(self, task_id: str) -> bool | None:
        """Writes the task's parked events; returns whether all were written, or None where none are parked."""
        async with self._database.session(limits=WRITING) as connection:
            writer = await self._writer(connection)
            async with connection.transaction():
                changes, definitions = await self._take(connection, task_id)
                await writer.write_again(changes, definitions)
            if not changes or task_id.encode() in writer.parked:
                return False if changes else None
        await self._acknowledge(changes)
        return True

    async def discard(self, task_id: str) -> int:
        """Deletes the task's parked events and returns their number. Writes the task's last state, if that is possible.

        The results and errors of the events are dropped: most often the database refused these.
        """
        async with self._database.session(limits=WRITING) as connection:
            writer = await self._writer(connection)
            async with connection.transaction():
                changes, definitions = await self._take(connection, task_id)
                await writer.backfill(
                    [msgspec.structs.replace(change, body=None) for change in changes[-1:]], definitions
                )
        for change in changes:
            log.warning("parked event discarded", task_id=task_id, version=change.readable_version)
        await self._acknowledge(changes)
        return len(changes)

    async def _writer(self, connection: Connection) -> Writer:
        checkpoints = Checkpoints(self._database, self._partition)
        writer = Writer(connection, checkpoints, self._partition, self._consumer.definitions)
        await writer.prepare()
        return writer

    async def _take(self, connection: Connection, task_id: str) -> tuple[list[Change], dict[bytes, bytes]]:
        """Removes the task's parked events, and returns them with its definition from the events, store or history."""
        await connection.execute(statement("lock_checkpoint"), (self._partition,))
        rows = await (await connection.execute(statement("unpark"), (self._partition, task_id))).fetchall()
        definitions = {task_id.encode(): definition for *_, definition in rows if definition is not None}
        if rows and not definitions:
            definitions = await self._consumer.definitions([task_id.encode()])
        if rows and not definitions:
            kept = await definitions_in_history(connection, [task_id])
            definitions = {id_.encode(): definition.packed for id_, definition in kept.items()}
        return [_change(*row) for row in rows], definitions

    async def _acknowledge(self, changes: Sequence[Change]) -> None:
        """Lets the store expire the finished task: it kept the task while history lacked events of it."""
        finished = finished_tasks(changes, ())
        if finished:
            await self._source.acknowledge(FIRST_ID, finished)


class ParkingOfAll:
    """Parked events of all partitions; those of a task are in the partition that has the task."""

    def __init__(self, parts: Sequence[Parking]) -> None:
        self._parts = parts

    async def tasks(self, limit: int = MAX_LISTED) -> list[ParkedTask]:
        found = [task for part in self._parts for task in await part.tasks(limit)]
        return sorted(found, key=lambda task: task.parked_ms)[:limit]

    async def retry(self, task_id: str) -> bool | None:
        outcomes = [outcome for part in self._parts if (outcome := await part.retry(task_id)) is not None]
        return all(outcomes) if outcomes else None

    async def discard(self, task_id: str) -> int:
        return sum([await part.discard(task_id) for part in self._parts])


def parking_of(database: Database, client: Any, engine: Engine) -> ParkingOfAll:
    return ParkingOfAll(
        [
            Parking(database, part.partition, OutboxConsumer(client, part.keys), part.settings.partition)
            for part in engine.parts
        ]
    )


def _change(
    entry_id: str, epoch: int, now_ms: int | None, task_id: str, record: bytes, body: bytes | None, _: Any
) -> Change:
    instant = entry_order(entry_id)[0] if now_ms is None else now_ms
    return Change(entry_id, epoch, instant, task_id.encode(), record, body)
