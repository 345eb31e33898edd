"""Checkpoints: the last outbox entry that history has. The epoch orders first: entry ids restart in a new store."""

from typing import NamedTuple

from tideq.persistence.database import Connection, Database, statement
from tideq.queue_core.outbox.reader import entry_order


class Checkpoint(NamedTuple):
    epoch: int
    entry_id: str
    now_ms: int
    """The store's clock when it wrote the entry."""
    event_count: int

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.epoch, *entry_order(self.entry_id))


class CheckpointMoved(RuntimeError):
    """Another replicator wrote these events, or the store entered another epoch."""


class Checkpoints:
    def __init__(self, database: Database, partition: int) -> None:
        self._database = database
        self._partition = partition

    async def read(self) -> Checkpoint | None:
        """Returns None before the first replication."""
        async with self._database.reading() as connection:
            return await self.read_with(connection)

    async def read_with(self, connection: Connection) -> Checkpoint | None:
        row = await (await connection.execute(statement("checkpoint"), (self._partition,))).fetchone()
        return Checkpoint(*row) if row else None

    async def enter_epoch(self, connection: Connection, checkpoint: Checkpoint) -> None:
        """Stops every replicator of an older epoch: its checkpoint no longer matches."""
        await connection.execute(
            statement("enter_epoch"),
            (self._partition, checkpoint.epoch, checkpoint.entry_id, checkpoint.now_ms, checkpoint.event_count),
        )

    async def close_epoch(self, connection: Connection, next_epoch: int) -> None:
        """Stops every replicator of an older epoch and leaves the position of history unchanged."""
        await connection.execute(statement("close_epoch"), (next_epoch, self._partition, next_epoch))

    async def move(self, connection: Connection, before: Checkpoint, after: Checkpoint) -> None:
        """Raises CheckpointMoved. Call it in the transaction that writes the rows."""
        moved = await connection.execute(
            statement("move_checkpoint"),
            {
                "partition": self._partition,
                "epoch": before.epoch,
                "before": before.entry_id,
                "after": after.entry_id,
                "now_ms": after.now_ms,
                "added": after.event_count - before.event_count,
            },
        )
        if moved.rowcount != 1:
            raise CheckpointMoved(f"the checkpoint is no longer {before.entry_id} of epoch {before.epoch}")
