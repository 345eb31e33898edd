"""Removes finished tasks permanently, many at once.

A task that the store still has is purged there, and the outbox carries the purge to history. The rows of any other task
are deleted. Live tasks are never deleted: the store is checked before the deletion and again before its commit, and a
retry or replay locks the row meanwhile (see `read/tasks.py`).
"""

from collections.abc import Callable, Sequence

from psycopg import Rollback

from tideq.persistence.database import WRITING, Connection, Database, statement
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.lag import HistoryLag
from tideq.persistence.read.task_list import TaskList
from tideq.persistence.recount import block_recount
from tideq.persistence.schema.partitions import DEPENDENTS, remove_from
from tideq.persistence.tombstones import Tombstone, add_tombstones
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.partition import Removed
from tideq.queue_core.partitioning.absent_tasks import AbsentTasks
from tideq.queue_core.queue import Queue
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import TERMINAL

BATCH_SIZE = 500
CATCH_UP_SECONDS = 2.0


class Cleanup:
    def __init__(
        self, database: Database, listing: TaskList, queue: Queue, absent_tasks: AbsentTasks, lag: HistoryLag
    ) -> None:
        self._database = database
        self._listing = listing
        self._queue = queue
        self._absent_tasks = absent_tasks
        self._lag = lag

    async def run(
        self,
        ended_below_ms: int,
        states: Sequence[TaskState] = (),
        task_type: str | None = None,
        on_progress: Callable[[int], None] = lambda removed: None,
    ) -> int:
        """Returns how many tasks were removed: all that ended before the instant, or only some states or one type."""
        wanted = TaskFilter(
            states=tuple(states or sorted(TERMINAL)), task_type=task_type, ended_below_ms=ended_below_ms
        )
        await self._lag.wait_until_caught_up(CATCH_UP_SECONDS)
        removed = 0
        async for task_ids in self._listing.ids(wanted, BATCH_SIZE):
            removed += await self.remove(task_ids)
            on_progress(removed)
        return removed

    async def remove(self, task_ids: Sequence[str]) -> int:
        """Returns how many of these tasks had ended and were removed."""
        outcomes = await self._queue.purge_many(task_ids)
        absent = [outcome.task_id for outcome in outcomes if isinstance(outcome.error, TaskNotFound)]
        purged_count = sum(outcome.error is None for outcome in outcomes)
        return purged_count + (await self._remove_absent(absent) if absent else 0)

    async def _remove_absent(self, task_ids: Sequence[str]) -> int:
        """Keeps the rows of tasks that return to the store meanwhile. A recount sees both sides changed, or neither."""
        async with self._database.session(limits=WRITING) as connection:
            await block_recount(connection, self._database.schema)
            while (removed := await self._delete_if_absent(connection, task_ids)) is None:
                task_ids = await self._absent(task_ids)
            if removed:
                await self._queue.forget_many(removed)
        return len(removed)

    async def _delete_if_absent(self, connection: Connection, task_ids: Sequence[str]) -> list[Removed] | None:
        """Returns the deleted tasks, or None and deletes nothing if the store has any of them."""
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
        gone = await self._absent_tasks.among(task_ids)
        return [task_id for task_id in task_ids if task_id in gone]
