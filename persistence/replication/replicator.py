"""The replicator: reads outbox entries, writes them to history in batches, and acknowledges them to the store.

Entries are read at least once and written exactly once: the checkpoint moves in the transaction that writes the rows,
and only from its last position. Any number may run; the holder of the lock works, the others wait for it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import structlog

from tideq.persistence.checkpoints import Checkpoint, CheckpointMoved, Checkpoints
from tideq.persistence.database import WAITING, WRITING, Connection, Database, limit, statement
from tideq.persistence.replication.backfill import Backfill
from tideq.persistence.replication.batch import (
    Batch,
    BatchLimit,
    changes_in,
    finished_tasks,
    linger_until_flush,
    read_batch,
)
from tideq.persistence.replication.rows import Change
from tideq.persistence.replication.writer import BatchCancelled, Writer
from tideq.queue_core.background import cancel_and_wait, run_all
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.engine import Engine
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID, OutboxEntry, written_ms
from tideq.queue_core.samples import Counters
from tideq.queue_core.store.side_data import read_side_data
from tideq.queue_core.telemetry.metrics import LONG_SECONDS

LOCK = 7_305_003
BLOCK_MS = 1_000
KEPT_ENTRIES = 1_000
"""Entries kept in the stream although history has them, so that an event stream can resume after a disconnect."""
ACKNOWLEDGE_LIMIT = 1_000
RETRY_SECONDS = 0.5
COPY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Replicator:
    def __init__(
        self,
        database: Database,
        engine: Engine,
        consumer: OutboxConsumer,
        partition: int = 0,
        on_batch: Callable[[Batch], None] = lambda _: None,
        linger_ms: int = 0,
    ) -> None:
        self._database = database
        self._source = engine.partition
        self._scripts = engine.scripts
        self._consumer = consumer
        self._partition = partition
        self._lock_name = f"{database.schema}:{partition}"
        self._checkpoints = Checkpoints(database, partition)
        self._on_batch = on_batch
        self._linger = partial(linger_until_flush, consumer, linger_ms) if linger_ms else None
        self._batch_limit = BatchLimit()
        self._kept: deque[str] = deque(maxlen=KEPT_ENTRIES)
        self._copied: dict[str, bytes] = {}

    async def run_for_ever(self, duties: Duties) -> None:
        """Retries every failure from the checkpoint: the stream keeps the entries that history lacks."""
        await duties.add("replication", self._replicate)

    async def _replicate(self, duty: Duty) -> None:
        while True:
            try:
                async with self._database.session(limits=WAITING) as connection:
                    await self._work_under_lock(connection, duty)
            except CheckpointMoved as error:
                log.info("replicator restarted", reason=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _work_under_lock(self, connection: Connection, duty: Duty) -> None:
        with duty.waiting():
            await connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, self._lock_name))
        await limit(connection, WRITING)
        writer = Writer(connection, self._checkpoints, self._partition, self._consumer.definitions)
        await writer.prepare()
        self._copied = {}
        checkpoint = await self._checkpoints.read_with(connection)
        if checkpoint is None:
            raise CheckpointMoved("there is no checkpoint yet")
        await self._require_epoch_of(checkpoint)
        await self._consumer.drop_idle_connections()
        await self._acknowledge_again(checkpoint, writer)
        await Backfill(connection, writer, self._consumer, checkpoint).run()
        await self._run(connection, writer, checkpoint, duty)

    async def _require_epoch_of(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointMoved if the store is of another epoch than history: it may be an old primary.

        The new connection and call make this process notice a fail-over that it missed.
        """
        if self._scripts.epoch != str(checkpoint.epoch):
            await self._scripts.drop_idle_connections()
            await read_side_data(self._scripts)
            raise CheckpointMoved(f"history is in epoch {checkpoint.epoch}, the store in {self._scripts.epoch}")

    async def _run(self, connection: Connection, writer: Writer, checkpoint: Checkpoint, duty: Duty) -> None:
        """Reads the next batch and acknowledges the last one while a full batch is written.

        After a batch that is not full the stream is empty: the next read begins only after the write, and gets more.
        """
        copied_at = 0.0
        reading = self._read_next(checkpoint.entry_id)
        confirming = asyncio.create_task(asyncio.sleep(0))
        try:
            while True:
                batch = await reading
                if batch.is_full:
                    reading = self._read_next(batch.entries[-1].entry_id)
                if batch.entries:
                    checkpoint = await self._write(writer, batch, checkpoint)
                    await confirming
                    confirming = asyncio.create_task(self._confirm(batch, writer))
                if not batch.is_full:
                    reading = self._read_next(checkpoint.entry_id)
                    await confirming
                if asyncio.get_running_loop().time() - copied_at > COPY_SECONDS:
                    await self._copy_side_data(connection)
                    copied_at = asyncio.get_running_loop().time()
                duty.succeeded()
        finally:
            await cancel_and_wait(reading, confirming)

    async def _write(self, writer: Writer, batch: Batch, checkpoint: Checkpoint) -> Checkpoint:
        """Shrinks the limit after a cancelled batch: a retry of the same size would be cancelled again."""
        try:
            after = await writer.write(batch, checkpoint)
        except BatchCancelled:
            self._batch_limit.shrink(len(batch.entries))
            raise
        self._batch_limit.grow()
        return after

    def _read_next(self, after: str) -> asyncio.Task[Batch]:
        return asyncio.create_task(
            read_batch(self._consumer, after, BLOCK_MS, self._linger, self._batch_limit.max_entries)
        )

    async def _confirm(self, batch: Batch, writer: Writer) -> None:
        await self._acknowledge(batch.entries, batch.latest, writer)
        self._on_batch(batch)

    async def _acknowledge(self, entries: Sequence[OutboxEntry], changes: Iterable[Change], writer: Writer) -> None:
        """Does not acknowledge tasks with parked events: only the store has all of their events."""
        self._kept.extend(entry.entry_id for entry in entries)
        first_kept = self._kept[0] if len(self._kept) == KEPT_ENTRIES else FIRST_ID
        finished = finished_tasks(changes, writer.parked)
        while len(finished) > ACKNOWLEDGE_LIMIT:
            await self._source.acknowledge(FIRST_ID, finished[:ACKNOWLEDGE_LIMIT])
            finished = finished[ACKNOWLEDGE_LIMIT:]
        await self._source.acknowledge(first_kept, finished)

    async def _acknowledge_again(self, checkpoint: Checkpoint, writer: Writer) -> None:
        """Repeats the last acknowledgements: without them, after a crash, finished tasks would not expire."""
        self._kept.clear()
        entries = await self._consumer.entries_up_to(checkpoint.entry_id)
        changes = [change for entry in entries for change in changes_in(entry)]
        await self._acknowledge(entries, changes, writer)

    async def _copy_side_data(self, connection: Connection) -> None:
        present = await read_side_data(self._scripts)
        for name, content in present.items():
            if self._copied.get(name) != content:
                await connection.execute(statement("copy_side_data"), (self._partition, name, content))
        self._copied = present


class Replicators:
    """A replicator for each partition. Several processes share the partitions: each partition has its own lock."""

    def __init__(self, parts: Sequence[Replicator]) -> None:
        self._parts = parts

    async def run_for_ever(self, duties: Duties | None = None) -> None:
        shared = duties or Duties()
        await run_all(*(part.run_for_ever(shared) for part in self._parts))


class BatchMeter:
    """Metrics of replication: batches, events, and their delay."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        counters.declare("tideq_replicated_batches_total", ())
        counters.declare("tideq_replicated_events_total", ())
        self._delays = counters.histogram("tideq_replication_delay_seconds", (), LONG_SECONDS)

    def note(self, batch: Batch) -> None:
        """Limit: the delay compares this machine's clock with the store's."""
        self._counters.add("tideq_replicated_batches_total")
        self._counters.add("tideq_replicated_events_total", amount=len(batch.changes))
        self._delays.note(max(time.time() - written_ms(batch.entries[-1]) / 1000, 0.0))
