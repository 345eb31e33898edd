"""How far history has come. Ordered by epoch first: stream ids start low again after the store was lost."""

from typing import NamedTuple

from tideq.persistence.database import Connection, Database, statement
from tideq.queue_core.outbox.consumer import entry_order


class Checkpoint(NamedTuple):
    epoch: int
    entry_id: str
    now_ms: int
    """The store's clock when the entry was written."""
    event_count: int

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.epoch, *entry_order(self.entry_id))


class CheckpointMoved(RuntimeError):
    """Another replicator has written these events, or the store has entered another epoch."""


class Checkpoints:
    def __init__(self, database: Database, partition: int) -> None:
        self._database = database
        self._partition = partition

    async def read(self) -> Checkpoint | None:
        """None where nothing was ever replicated."""
        async with self._database.reading() as connection:
            return await self.read_with(connection)

    async def read_with(self, connection: Connection) -> Checkpoint | None:
        row = await (await connection.execute(statement("checkpoint"), (self._partition,))).fetchone()
        return Checkpoint(*row) if row else None

    async def enter_epoch(self, connection: Connection, checkpoint: Checkpoint) -> None:
        """Whoever still replicates for an older epoch finds its checkpoint gone and stops."""
        await connection.execute(
            statement("enter_epoch"),
            (self._partition, checkpoint.epoch, checkpoint.entry_id, checkpoint.now_ms, checkpoint.event_count),
        )

    async def close_epoch(self, connection: Connection, next_epoch: int) -> None:
        """Whoever replicates for an older epoch stops; history stays where it is."""
        await connection.execute(statement("close_epoch"), (next_epoch, self._partition, next_epoch))

    async def move(self, connection: Connection, before: Checkpoint, after: Checkpoint) -> None:
        """In the transaction that writes the rows: both happen or neither does."""
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
            raise CheckpointMoved(f"no longer at {before.entry_id} of epoch {before.epoch}")
