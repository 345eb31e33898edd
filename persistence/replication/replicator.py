"""The replicator: outbox entries → batches → rows, then acknowledged, for ever.

At least once from the stream, exactly once into history: the checkpoint moves in the transaction that writes the rows,
and only from where it was. Any number may run; one at a time has the lock and works, the others wait for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved, Checkpoints
from tideq.persistence.database import WAITING, WRITING, Connection, Database, limit, statement
from tideq.persistence.replication.backfill import Backfill
from tideq.persistence.replication.batch import Portion, ReadBatch, read_batch
from tideq.persistence.replication.changes import Change, changes_in
from tideq.persistence.replication.lingering import linger_over
from tideq.persistence.replication.rows import finished_in
from tideq.persistence.replication.writer import BatchCancelled, WriteBatch, Writer
from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.engine import Engine
from tideq.queue_core.outbox.consumer import FIRST_ID, OutboxConsumer, OutboxEntry
from tideq.queue_core.store.side_data import read_side_data

LOCK = 7_305_003
BLOCK_MS = 1_000
KEPT_ENTRIES = 1_000
"""Left in the stream although history has them, so that a listener who lost its connection can go on."""
ACKNOWLEDGE_LIMIT = 1_000
RETRY_SECONDS = 0.5
COPY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Replicator:
    def __init__(
        self,
        database: Database,
        engine: Engine,
        feed: OutboxConsumer,
        partition: int = 0,
        on_batch: Callable[[WriteBatch], None] = lambda _: None,
        linger_ms: int = 0,
    ) -> None:
        self._database = database
        self._queue = engine.queue
        self._scripts = engine.scripts
        self._feed = feed
        self._partition = partition
        self._lock_name = f"{database.schema}:{partition}"
        self._checkpoints = Checkpoints(database, partition)
        self._on_batch = on_batch
        self._linger = partial(linger_over, feed, linger_ms) if linger_ms else None
        self._portion = Portion()
        self._kept: deque[str] = deque(maxlen=KEPT_ENTRIES)
        self._copied: dict[str, bytes] = {}

    async def run_for_ever(self, duties: Duties | None = None) -> None:
        """Whatever fails is tried again from the checkpoint: the stream keeps what history does not have."""
        await (duties or Duties()).add("replication", self._replicate)

    async def _replicate(self, duty: Duty) -> None:
        while True:
            try:
                async with self._database.session(limits=WAITING) as connection:
                    await self._work_when_alone(connection, duty)
            except CheckpointMoved as error:
                log.info("replicator gives way", reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _work_when_alone(self, connection: Connection, duty: Duty) -> None:
        with duty.waiting():
            await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, self._lock_name))
        await limit(connection, WRITING)
        writer = Writer(connection, self._checkpoints, self._partition, self._feed.definitions)
        await writer.prepare()
        self._copied = {}
        checkpoint = await self._checkpoints.read_with(connection)
        if checkpoint is None:
            raise CheckpointMoved("there is no checkpoint yet")
        await self._give_way_to(checkpoint)
        await self._feed.drop_idle_connections()
        await self._acknowledge_again(checkpoint, writer)
        await Backfill(connection, writer, self._feed, checkpoint).run()
        await self._work(connection, writer, checkpoint, duty)

    async def _give_way_to(self, checkpoint: Checkpoint) -> None:
        """A store of another epoch is not the one history follows: it may be an old primary that does not know.

        Asked anew, whoever is the store by now tells this process if it has missed something.
        """
        if self._scripts.epoch != str(checkpoint.epoch):
            await self._scripts.drop_idle_connections()
            await read_side_data(self._scripts)
            raise CheckpointMoved(f"history is of epoch {checkpoint.epoch}, the store of {self._scripts.epoch}")

    async def _work(self, connection: Connection, writer: Writer, checkpoint: Checkpoint, duty: Duty) -> None:
        """While a full batch is being written the next is being read, and the store is told of the last.

        After any other the stream is empty: what is read once history has that batch is more, and as early. A batch
        that does not fill lingers for more.
        """
        copied_at = 0.0
        gathering = self._gathering(checkpoint.entry_id)
        telling = asyncio.create_task(asyncio.sleep(0))
        try:
            while True:
                gathered = await gathering
                if gathered.is_full:
                    gathering = self._gathering(gathered.entries[-1].entry_id)
                if gathered.entries:
                    batch = gathered.batch(checkpoint)
                    await self._write(writer, batch, len(gathered.entries))
                    checkpoint = batch.after
                    await telling
                    telling = asyncio.create_task(self._tell(batch, gathered, writer))
                if not gathered.is_full:
                    gathering = self._gathering(checkpoint.entry_id)
                    await telling
                if asyncio.get_running_loop().time() - copied_at > COPY_SECONDS:
                    await self._copy_belongings(connection)
                    copied_at = asyncio.get_running_loop().time()
                duty.succeeded()
        finally:
            await cancel_and_wait(gathering, telling)

    async def _write(self, writer: Writer, batch: WriteBatch, entry_count: int) -> None:
        """One that the database cancels is too large for it now: tried again as it is it would be cancelled again."""
        try:
            await writer.write(batch)
        except BatchCancelled:
            self._portion.cancelled(entry_count)
            raise
        self._portion.taken()

    def _gathering(self, after: str) -> asyncio.Task[ReadBatch]:
        return asyncio.create_task(read_batch(self._feed, after, BLOCK_MS, self._linger, self._portion.most))

    async def _tell(self, batch: WriteBatch, gathered: ReadBatch, writer: Writer) -> None:
        await self._acknowledge(gathered.entries, gathered.latest, writer)
        self._on_batch(batch)

    async def _acknowledge(self, entries: Sequence[OutboxEntry], changes: Iterable[Change], writer: Writer) -> None:
        """Tasks with parked events stay in the store, which is then the only one to know all of them."""
        self._kept.extend(entry.entry_id for entry in entries)
        first_kept = self._kept[0] if len(self._kept) == KEPT_ENTRIES else FIRST_ID
        finished = finished_in(changes, writer.parked)
        while len(finished) > ACKNOWLEDGE_LIMIT:
            await self._queue.acknowledge(FIRST_ID, finished[:ACKNOWLEDGE_LIMIT])
            finished = finished[ACKNOWLEDGE_LIMIT:]
        await self._queue.acknowledge(first_kept, finished)

    async def _acknowledge_again(self, checkpoint: Checkpoint, writer: Writer) -> None:
        """A replicator that died between commit and acknowledgement left finished tasks that no one would forget."""
        self._kept.clear()
        entries = await self._feed.read_up_to(checkpoint.entry_id)
        changes = [change for entry in entries for change in changes_in(entry)]
        await self._acknowledge(entries, changes, writer)

    async def _copy_belongings(self, connection: Connection) -> None:
        present = await read_side_data(self._scripts)
        for name, content in present.items():
            if self._copied.get(name) != content:
                await connection.execute(statement("copy_belongings"), (self._partition, name, content))
        self._copied = present
