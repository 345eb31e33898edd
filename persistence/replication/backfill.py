"""Learning from the store what its stream no longer tells.

The stream is trimmed below the last entry that history has. Where it lacks more, history was set back to a backup or is
younger than the queue: what happened in between is lost to it. How the tasks are now is not, and is read from the
store. Events that are still in the stream follow as ever, so tasks that were born in it are left to them.
"""

import structlog

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import Connection, statement
from tideq.persistence.replication.changes import Change
from tideq.persistence.replication.writer import Writer
from tideq.queue_core.outbox.consumer import OutboxConsumer, OutboxGap

log = structlog.get_logger(__name__)


class Backfill:
    def __init__(self, connection: Connection, writer: Writer, feed: OutboxConsumer, checkpoint: Checkpoint) -> None:
        self._connection = connection
        self._writer = writer
        self._feed = feed
        self._checkpoint = checkpoint

    async def run(self) -> None:
        """Nothing where nothing is missing. Interrupted, it is done again: the checkpoint has not moved."""
        if await self._feed.gap_after(self._checkpoint.entry_id) is None:
            return
        log.error("history lacks events that the store has forgotten", after=self._checkpoint.entry_id)
        async for known in self._feed.known_ids():
            # After each page: what was trimmed by then says which of its tasks the stream does not tell of.
            if gap := await self._feed.gap_after(self._checkpoint.entry_id):
                await self._learn(known, gap)

    async def _learn(self, task_ids: list[bytes], gap: OutboxGap) -> None:
        versions, definitions = await self._versions(task_ids), await self._feed.definitions(task_ids)
        records, results = await self._feed.records(task_ids), await self._feed.results(task_ids)
        changes = [
            Change("", self._checkpoint.epoch, self._checkpoint.now_ms, task_id, packed, result)
            for task_id, packed, result in zip(task_ids, records, results, strict=True)
            if packed is not None and task_id in definitions
        ]
        unknown = [
            each for each in changes if each.known_version > versions.get(each.task_id, 0) and _is_lost(each, gap)
        ]
        await self._writer.backfill(unknown, definitions)
        log.warning("history learned tasks from the store", count=len(unknown))

    async def _versions(self, task_ids: list[bytes]) -> dict[bytes, int]:
        found = await self._connection.execute(statement("standings"), ([task_id.decode() for task_id in task_ids],))
        return {task_id.encode(): version for task_id, _, version in await found.fetchall()}


def _is_lost(change: Change, gap: OutboxGap) -> bool:
    return gap.before_ms is None or (change.known_created_ms or 0) < gap.before_ms
