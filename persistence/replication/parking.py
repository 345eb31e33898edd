"""Parked events: which tasks have them, writing them after all, and giving them up.

One task at a time, in one transaction, while replicators wait: they go on with the task as soon as it has none left.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog

from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import WRITING, Connection, Database, statement
from tideq.persistence.definitions import kept_definitions
from tideq.persistence.replication.changes import Change
from tideq.persistence.replication.rows import finished_in
from tideq.persistence.replication.writer import Writer
from tideq.queue_core.engine import Engine
from tideq.queue_core.outbox.consumer import FIRST_ID, OutboxConsumer, entry_order
from tideq.queue_core.queue import Queue

MAX_LISTED = 10_000

log = structlog.get_logger(__name__)


class ParkedTask(NamedTuple):
    task_id: str
    first_version: int
    last_version: int
    event_count: int
    parked_ms: int
    problem: str
    """Of the first event; those behind it are parked for its sake."""


class Parking:
    def __init__(self, database: Database, queue: Queue, feed: OutboxConsumer, partition: int) -> None:
        self._database = database
        self._queue = queue
        self._feed = feed
        self._partition = partition

    async def tasks(self, limit: int = MAX_LISTED) -> list[ParkedTask]:
        """The earliest first."""
        async with self._database.session(limits=WRITING) as connection:
            found = await connection.execute(statement("parked_tasks"), (self._partition, limit))
            return [ParkedTask(*row) for row in await found.fetchall()]

    async def retry(self, task_id: str) -> bool | None:
        """Write its events as they came; whether all went in, or None where none are parked."""
        async with self._database.session(limits=WRITING) as connection:
            writer = await self._writer(connection)
            async with connection.transaction():
                changes, definitions = await self._take(connection, task_id)
                await writer.write_again(changes, definitions)
            if not changes or task_id.encode() in writer.parked:
                return False if changes else None
        await self._let_go(changes)
        return True

    async def discard(self, task_id: str) -> int:
        """Give its events up; how many there were. History has the task as it was last heard of, if it can hold that.

        Without what came with the events: most often that is what could not be written.
        """
        async with self._database.session(limits=WRITING) as connection:
            writer = await self._writer(connection)
            async with connection.transaction():
                changes, definitions = await self._take(connection, task_id)
                await writer.backfill([_without_body(change) for change in changes[-1:]], definitions)
        for change in changes:
            log.warning("history gave an event up", task_id=task_id, version=change.known_version)
        await self._let_go(changes)
        return len(changes)

    async def _writer(self, connection: Connection) -> Writer:
        checkpoints = Checkpoints(self._database, self._partition)
        writer = Writer(connection, checkpoints, self._partition, self._feed.definitions)
        await writer.prepare()
        return writer

    async def _take(self, connection: Connection, task_id: str) -> tuple[list[Change], dict[bytes, bytes]]:
        """Its events, no longer parked, and its definition, wherever that still is."""
        await connection.execute(statement("hold_checkpoint"), (self._partition,))
        rows = await (await connection.execute(statement("unpark"), (self._partition, task_id))).fetchall()
        known = {task_id.encode(): definition for *_, definition in rows if definition is not None}
        if rows and not known:
            known = await self._feed.definitions([task_id.encode()]) or await _known_definition(connection, task_id)
        return [_change(*row) for row in rows], known

    async def _let_go(self, changes: Sequence[Change]) -> None:
        """The store kept the task for as long as nobody else knew all of it."""
        finished = finished_in(changes, ())
        if finished:
            await self._queue.acknowledge(FIRST_ID, finished)


class ParkingOfAll:
    """Of all partitions: a task's events are parked in the one that has it."""

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
            Parking(database, part.queue, OutboxConsumer(client, client, part.keys), part.settings.partition)
            for part in engine.parts
        ]
    )


def _change(
    entry_id: str, epoch: int, now_ms: int | None, task_id: str, record: bytes, body: bytes | None, _: Any
) -> Change:
    instant = entry_order(entry_id)[0] if now_ms is None else now_ms
    return Change(entry_id, epoch, instant, task_id.encode(), record, body)


def _without_body(change: Change) -> Change:
    return Change(change.entry_id, change.epoch, change.now_ms, change.task_id, change.packed, None)


async def _known_definition(connection: Connection, task_id: str) -> dict[bytes, bytes]:
    rows = await (await connection.execute(statement("some_tasks"), ([task_id],))).fetchall()
    return {known_id.encode(): known.packed for known_id, known in kept_definitions(rows).items()}
