"""Writes the rest of a closed store's outbox to history, before the store is emptied.

Replicators may run meanwhile: the first to move the checkpoint has written the batch, and the other continues there.
"""

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved, Checkpoints
from tideq.persistence.database import WRITING, Database
from tideq.persistence.replication.backfill import Backfill
from tideq.persistence.replication.batch import BatchLimit, read_batch
from tideq.persistence.replication.writer import BatchCancelled, Writer
from tideq.queue_core.outbox.consumer import OutboxConsumer


async def is_behind(consumer: OutboxConsumer, checkpoint: Checkpoint) -> bool:
    return bool(await consumer.read(checkpoint.entry_id, count=1))


async def flush_outbox(
    database: Database, consumer: OutboxConsumer, partition: int, checkpoint: Checkpoint
) -> Checkpoint:
    """Writes all entries beyond the checkpoint, and returns the new one. Skips events that history has already."""
    if not await is_behind(consumer, checkpoint):
        return checkpoint
    checkpoints = Checkpoints(database, partition)
    batch_limit = BatchLimit()
    async with database.session(limits=WRITING) as connection:
        writer = Writer(connection, checkpoints, partition, consumer.definitions)
        await writer.prepare()
        await Backfill(connection, writer, consumer, checkpoint).run()
        while (read := await read_batch(consumer, checkpoint.entry_id, max_entries=batch_limit.max_entries)).entries:
            try:
                batch = read.to_write(checkpoint)
                await writer.write(batch)
                checkpoint = batch.after
                batch_limit.grow()
            except BatchCancelled:
                if len(read.entries) == 1:
                    raise
                batch_limit.shrink(len(read.entries))
            except CheckpointMoved:
                checkpoint = await checkpoints.read_with(connection) or checkpoint
    return checkpoint
