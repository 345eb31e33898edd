"""Recount: corrects the store's counts of ended tasks from history.

The store counts tasks as they end, and a lost store loses its counts. So history is counted from time to time, together
with the entries of the outbox that history lacks, and the difference is added. The cause of the difference does not
matter, and tasks may end during the recount.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from tideq.persistence.checkpoints import Checkpoint, Checkpoints
from tideq.persistence.database import REPAIRING, Connection, Database, statement
from tideq.persistence.recovery.parked import parked_tasks
from tideq.queue_core.engine import Engine
from tideq.queue_core.lanes import task_type_of
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.states import Reason
from tideq.queue_core.store.ended_tasks import EndedCounts, EndedTasks, Kind, folded, named_kinds
from tideq.queue_core.task_id import is_task_id
from tideq.queue_core.transitions import TERMINAL

LOCK = 7_305_005
EVERY_MS = 86_400_000
STATES = sorted(TERMINAL)

log = structlog.get_logger(__name__)


class RecountPostponed(RuntimeError):
    """The store and history cannot be compared now; try again later."""


async def block_recount(connection: Connection, schema: str) -> None:
    """Keeps recounts out until the connection closes, while counted tasks are removed from history and the store."""
    await connection.execute("SELECT pg_advisory_lock_shared(%s, hashtext(%s))", (LOCK, schema))


class Recount:
    def __init__(self, database: Database, client: Any, engine: Engine) -> None:
        self._database = database
        self._parts = [
            PartitionCounts(
                EndedTasks(part.scripts),
                OutboxConsumer(client, part.keys),
                Checkpoints(database, part.settings.partition),
                part.settings.partition,
            )
            for part in engine.parts
        ]

    async def is_due(self) -> bool:
        """Returns whether the store has a new epoch, and perhaps lost its counts, or the last recount is a day old."""
        return any(await asyncio.gather(*(part.ended.is_due(EVERY_MS) for part in self._parts)))

    async def run(self) -> dict[Kind, int]:
        """Returns the differences that were added. Raises RecountPostponed. Costs a scan of an index of all tasks."""
        async with self._database.session(limits=REPAIRING) as connection:
            found, expected = await self._read_consistent(connection)
        corrections = _corrections([counts.counts for counts in found], expected)
        await self._apply(found, corrections)
        differences: Counter[Kind] = Counter()
        for each in corrections:
            differences.update(each)
        return {kind: amount for kind, amount in differences.items() if amount}

    async def _read_consistent(self, connection: Connection) -> tuple[list[EndedCounts], Counter[Kind]]:
        """Returns the stores' counts, and the expected counts by history and the outbox, as of one instant.

        The lock keeps clean-ups out until the stores were read; the transaction keeps partitions from being dropped.
        """
        await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, self._database.schema))
        async with connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            await connection.execute("LOCK TABLE tasks IN ACCESS SHARE MODE")
            checkpoints = [await part.checkpoints.read_with(connection) for part in self._parts]
            found = await asyncio.gather(
                *(part.read(checkpoint) for part, checkpoint in zip(self._parts, checkpoints, strict=True))
            )
            await connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (LOCK, self._database.schema))
            expected = await _counted(connection)
            latest = [
                await part.latest_kinds(connection, counts) for part, counts in zip(self._parts, found, strict=True)
            ]
            expected.update(kind for each in latest for kind in each.values() if kind)
            expected.subtract(await _kinds_of(connection, {task_id for each in latest for task_id in each}))
        return found, expected

    async def _apply(self, found: Sequence[EndedCounts], corrections: Sequence[Mapping[Kind, int]]) -> None:
        """Adds to each partition its own correction."""
        for part, counts, correction in zip(self._parts, found, corrections, strict=True):
            if not await part.ended.correct(counts, correction):
                raise RecountPostponed("another process recounted at the same time")
            if correction:
                added = {" ".join(kind): amount for kind, amount in correction.items()}
                log.info("ended tasks recounted", added=added)


class PartitionCounts:
    """The counts of one partition of the store, and of the tasks whose rows in history are behind."""

    def __init__(self, ended: EndedTasks, consumer: OutboxConsumer, checkpoints: Checkpoints, number: int) -> None:
        self.ended = ended
        self.checkpoints = checkpoints
        self._consumer = consumer
        self._number = number

    async def read(self, checkpoint: Checkpoint | None) -> EndedCounts:
        if checkpoint is None or str(checkpoint.epoch) != self.ended.present_epoch:
            raise RecountPostponed("history is not of the store's epoch yet")
        counts = await self.ended.read(checkpoint.entry_id)
        if not counts.is_whole or await self._consumer.gap_after(checkpoint.entry_id):
            raise RecountPostponed("history is too far behind the store")
        return counts

    async def latest_kinds(self, connection: Connection, counts: EndedCounts) -> dict[str, Kind | None]:
        """Returns type and state of tasks that are newer than their rows: parked ones, and those in the outbox."""
        latest: dict[str, Kind | None] = {}
        for task in await parked_tasks(connection, self._number):
            state = task.record.text("state")
            has_ended = state in STATES and task.record.text("reason") != Reason.PURGED
            latest[task.restored.task_id] = (task_type_of(task.restored.signature), state) if has_ended else None
        return latest | {task_id: kind for task_id, kind in counts.latest_kinds.items() if is_task_id(task_id)}


def _corrections(counted: Sequence[Mapping[Kind, int]], expected: Mapping[Kind, int]) -> list[dict[Kind, int]]:
    """Returns what to add to the counts of each partition, so that the sum of all partitions is as expected.

    Each partition moves its own counts of kinds that became rare; the first one gets the rest of the difference.
    """
    present = dict.fromkeys((kind for counts in counted for kind in counts), 0)
    named = named_kinds({**present, **expected})
    kept = [folded(counts, named) for counts in counted]
    missing = folded(expected, named)
    for counts in kept:
        missing.subtract(counts)
    kept[0].update(missing)
    for target, counts in zip(kept, counted, strict=True):
        target.subtract(counts)
    return [{kind: amount for kind, amount in added.items() if amount} for added in kept]


async def _counted(connection: Connection) -> Counter[Kind]:
    found = await connection.execute(statement("count_ended"), (STATES,))
    return Counter({(task_type, state): count for task_type, state, count in await found.fetchall()})


async def _kinds_of(connection: Connection, task_ids: set[str]) -> list[Kind]:
    """Returns type and state of the tasks that are ended in history."""
    found = await connection.execute(statement("ended_kinds"), (sorted(task_ids), STATES))
    return [(task_type, state) for _, task_type, state in await found.fetchall()]
