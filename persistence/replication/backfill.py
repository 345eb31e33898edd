"""Backfill: writes what the stream has lost or a closed store still has.

Reads tasks from the store whose events were trimmed from the stream before history had them.

The stream is trimmed only up to the last entry in history. A larger gap means that history was restored from a backup
or is younger than the queue. The events in the gap are lost; the present state of the tasks is read from the store.
Events still in the stream are replicated as usual, so tasks created in it are left out here.
"""

import structlog

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved, Checkpoints
from tideq.persistence.database import WRITING, Connection, Database, statement
from tideq.persistence.replication.batch import BatchLimit, read_batch
from tideq.persistence.replication.rows import Change
from tideq.persistence.replication.writer import BatchCancelled, Writer
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import OutboxGap

log = structlog.get_logger(__name__)


class Backfill:
    def __init__(
        self, connection: Connection, writer: Writer, consumer: OutboxConsumer, checkpoint: Checkpoint
    ) -> None:
        self._connection = connection
        self._writer = writer
        self._consumer = consumer
        self._checkpoint = checkpoint

    async def run(self) -> None:
        """Does nothing without a gap. Runs again after an interruption: the checkpoint does not move."""
        if await self._consumer.gap_after(self._checkpoint.entry_id) is None:
            return
        log.error("history gap found, reading tasks from the store", after=self._checkpoint.entry_id)
        async for task_ids in self._consumer.task_ids():
            # After each page: entries trimmed meanwhile extend the gap, and more tasks of the page are in it.
            if gap := await self._consumer.gap_after(self._checkpoint.entry_id):
                await self._backfill(task_ids, gap)

    async def _backfill(self, task_ids: list[bytes], gap: OutboxGap) -> None:
        versions, definitions = await self._versions(task_ids), await self._consumer.definitions(task_ids)
        records, results = await self._consumer.records(task_ids), await self._consumer.results(task_ids)
        changes = [
            Change("", self._checkpoint.epoch, self._checkpoint.now_ms, task_id, packed, result)
            for task_id, packed, result in zip(task_ids, records, results, strict=True)
            if packed is not None and task_id in definitions
        ]
        missing = [
            each for each in changes if each.readable_version > versions.get(each.task_id, 0) and _is_lost(each, gap)
        ]
        await self._writer.backfill(missing, definitions)
        log.warning("tasks backfilled from the store", count=len(missing))

    async def _versions(self, task_ids: list[bytes]) -> dict[bytes, int]:
        found = await self._connection.execute(
            statement("task_versions"), ([task_id.decode() for task_id in task_ids],)
        )
        return {task_id.encode(): version for task_id, _, version in await found.fetchall()}


def _is_lost(change: Change, gap: OutboxGap) -> bool:
    return gap.before_ms is None or (change.readable_created_ms or 0) < gap.before_ms


async def is_behind(consumer: OutboxConsumer, checkpoint: Checkpoint) -> bool:
    return bool(await consumer.read(checkpoint.entry_id, count=1))


async def flush_outbox(
    database: Database, consumer: OutboxConsumer, partition: int, checkpoint: Checkpoint
) -> Checkpoint:
    """Writes the rest of a closed store's outbox before the store is emptied, and returns the new checkpoint.

    Skips events that history has already. Replicators may run meanwhile: the first to move the checkpoint has written
    the batch, and the other continues there.
    """
    if not await is_behind(consumer, checkpoint):
        return checkpoint
    checkpoints = Checkpoints(database, partition)
    batch_limit = BatchLimit()
    async with database.session(limits=WRITING) as connection:
        writer = Writer(connection, checkpoints, partition, consumer.definitions)
        await writer.prepare()
        await Backfill(connection, writer, consumer, checkpoint).run()
        while (batch := await read_batch(consumer, checkpoint.entry_id, max_entries=batch_limit.max_entries)).entries:
            try:
                checkpoint = await writer.write(batch, checkpoint)
                batch_limit.grow()
            except BatchCancelled:
                if len(batch.entries) == 1:
                    raise
                batch_limit.shrink(len(batch.entries))
            except CheckpointMoved:
                checkpoint = await checkpoints.read_with(connection) or checkpoint
    return checkpoint
