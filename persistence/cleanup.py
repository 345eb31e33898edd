"""Removing finished tasks for good, many at once.

Where the store still has a task it is purged there, and the outbox tells history and everyone else. Where it does not,
its rows are deleted. Never a live task: the store's word is asked for before, and again before a deletion is committed;
whoever revives a task holds its row meanwhile (see `history.py`).
"""

from collections.abc import Callable, Sequence

from psycopg import Rollback

from tideq.persistence.database import WRITING, Connection, Database, statement
from tideq.persistence.reading.filters import TaskFilter
from tideq.persistence.reading.freshness import Fresh
from tideq.persistence.reading.listing import Listing
from tideq.persistence.recount import share_counts
from tideq.persistence.schema.partitions import DEPENDENTS, remove_from
from tideq.persistence.tombstones import Tombstone, add_tombstones
from tideq.queue_core.engine.feed import Feed
from tideq.queue_core.engine.queue import Queue, Removed
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import TERMINAL

BATCH_SIZE = 500
CATCH_UP_SECONDS = 2.0


class Cleanup:
    def __init__(self, database: Database, listing: Listing, queue: Queue, feed: Feed, freshness: Fresh) -> None:
        self._database = database
        self._listing = listing
        self._queue = queue
        self._feed = feed
        self._freshness = freshness

    async def run(
        self,
        ended_below_ms: int,
        states: Sequence[TaskState] = (),
        task_type: str | None = None,
        on_progress: Callable[[int], None] = lambda removed: None,
    ) -> int:
        """Every task that ended before this instant, or those in some terminal states or of a type; how many went."""
        wanted = TaskFilter(
            states=tuple(states or sorted(TERMINAL)), task_type=task_type, ended_below_ms=ended_below_ms
        )
        await self._freshness.catch_up(CATCH_UP_SECONDS)
        removed = 0
        async for task_ids in self._listing.ids(wanted, BATCH_SIZE):
            removed += await self.remove(task_ids)
            on_progress(removed)
        return removed

    async def remove(self, task_ids: Sequence[str]) -> int:
        """Those of these tasks that have ended; how many there were."""
        outcomes = await self._queue.purge_many(task_ids)
        absent = [outcome.task_id for outcome in outcomes if isinstance(outcome.error, TaskNotFound)]
        purged_count = sum(outcome.error is None for outcome in outcomes)
        return purged_count + (await self._remove_absent(absent) if absent else 0)

    async def _remove_absent(self, task_ids: Sequence[str]) -> int:
        """What comes back into the store meanwhile stays, rows and all. A recount sees both sides changed, or none."""
        async with self._database.session(limits=WRITING) as connection:
            await share_counts(connection, self._database.schema)
            while (removed := await self._delete_if_absent(connection, task_ids)) is None:
                task_ids = await self._absent(task_ids)
            if removed:
                await self._queue.forget_many(removed)
        return len(removed)

    async def _delete_if_absent(self, connection: Connection, task_ids: Sequence[str]) -> list[Removed] | None:
        """All or, where the store has any of them, none: what was deleted."""
        async with connection.transaction() as deletion:
            found = await connection.execute(statement("delete_ended"), (list(task_ids), sorted(TERMINAL)))
            rows = await found.fetchall()
            removed = [Removed(*row[:4]) for row in rows]
            await add_tombstones(connection, [Tombstone(task_id, *life) for task_id, _, _, _, *life in rows])
            for table in DEPENDENTS:
                await connection.execute(remove_from(table), ([each.task_id for each in removed],))
            if len(await self._absent(task_ids)) < len(task_ids):
                raise Rollback(deletion)
            return removed
        return None

    async def _absent(self, task_ids: Sequence[str]) -> list[str]:
        gone = await self._feed.absent([task_id.encode() for task_id in task_ids])
        return [task_id for task_id in task_ids if task_id.encode() in gone]
