"""What a closed store has not yet told history, written before the store is emptied: nothing is lost with it.

Replicators may run meanwhile: who moves the checkpoint first has written the batch, and the other goes on from there.
"""

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved, Checkpoints
from tideq.persistence.database import WRITING, Database
from tideq.persistence.replication.backfill import Backfill
from tideq.persistence.replication.batch import Portion, read_batch
from tideq.persistence.replication.writer import BatchCancelled, Writer
from tideq.queue_core.outbox.consumer import OutboxConsumer


async def is_behind(feed: OutboxConsumer, checkpoint: Checkpoint) -> bool:
    return bool(await feed.read(checkpoint.entry_id, count=1))


async def flush_outbox(database: Database, feed: OutboxConsumer, partition: int, checkpoint: Checkpoint) -> Checkpoint:
    """Everything the stream has beyond the checkpoint; returns how far history is then.

    What history has all the same, because somebody was killed here before, is passed over.
    """
    if not await is_behind(feed, checkpoint):
        return checkpoint
    checkpoints = Checkpoints(database, partition)
    portion = Portion()
    async with database.session(limits=WRITING) as connection:
        writer = Writer(connection, checkpoints, partition, feed.definitions)
        await writer.prepare()
        await Backfill(connection, writer, feed, checkpoint).run()
        while (gathered := await read_batch(feed, checkpoint.entry_id, most=portion.most)).entries:
            try:
                batch = gathered.batch(checkpoint)
                await writer.write(batch)
                checkpoint = batch.after
                portion.taken()
            except BatchCancelled:
                if len(gathered.entries) == 1:
                    raise
                portion.cancelled(len(gathered.entries))
            except CheckpointMoved:
                checkpoint = await checkpoints.read_with(connection) or checkpoint
    return checkpoint
