"""Backfill: reads tasks from the store whose events were trimmed from the stream before history had them.

The stream is trimmed only up to the last entry in history. A larger gap means that history was restored from a backup
or is younger than the queue. The events in the gap are lost; the present state of the tasks is read from the store.
Events still in the stream are replicated as usual, so tasks created in it are left out here.
"""

import structlog

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import Connection, statement
from tideq.persistence.replication.changes import Change
from tideq.persistence.replication.writer import Writer
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
