"""Replays all dead letters that match a filter.

A replay requires the version of the task that is dead: a repeated call replays a task once. It also works for tasks
whose record has left the store. An interrupted replay has replayed a part, and can be run again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tideq.persistence.database import Database
from tideq.persistence.dead_letters.dead_letter_list import DeadLetterFilter, DeadLetters, Death
from tideq.persistence.read.lag import HistoryLag
from tideq.persistence.read.tasks import lock_tasks
from tideq.queue_core.errors import HistoryUnavailable, QueueError, Refused, TaskNotFound, UnknownPriority, WrongState
from tideq.queue_core.partition import KeptTask, OnRequeued
from tideq.queue_core.queue import Queue
from tideq.queue_core.scripts.record import parse_record
from tideq.queue_core.task import Task

BATCH_SIZE = 100
CATCH_UP_SECONDS = 2.0


class Replayed(NamedTuple):
    matched: int
    replayed: int
    refused: int = 0
    """Refused by the queue, for instance because no lane is free. The rest was requeued or purged meanwhile."""


class ReplayOptions(NamedTuple):
    """The budgets and priority of the replayed tasks; None keeps the priority."""

    keeps_budgets: bool = False
    priority: str | None = None


AS_BEFORE = ReplayOptions()


class Replays:
    def __init__(self, database: Database, dead_letters: DeadLetters, queue: Queue, lag: HistoryLag) -> None:
        self._database = database
        self._dead_letters = dead_letters
        self._queue = queue
        self._lag = lag

    async def preview(self, wanted: DeadLetterFilter) -> Replayed:
        await self._lag.wait_until_caught_up(CATCH_UP_SECONDS)
        count, _ = await self._dead_letters.count(wanted)
        return Replayed(count, 0)

    async def run(
        self,
        wanted: DeadLetterFilter,
        options: ReplayOptions = AS_BEFORE,
        on_progress: Callable[[int, int], None] = lambda done, matched: None,
        on_requeued: OnRequeued | None = None,
    ) -> Replayed:
        """Replays the dead letters that match now, the earliest death first; later deaths are left out.

        Raises HistoryUnavailable if history stays behind the queue.
        """
        await self._lag.wait_until_caught_up(CATCH_UP_SECONDS)
        matched, last_ms = await self._dead_letters.count(wanted)
        replayed = refused = done = 0
        death: Death | None = None
        while last_ms is not None:
            deaths = await self._dead_letters.next_deaths(wanted, death, last_ms, BATCH_SIZE)
            if not deaths:
                break
            outcomes = await self._replay_batch([str(each.task_id) for each in deaths], options, on_requeued)
            replayed += outcomes.count(None)
            refused += sum(isinstance(outcome, Refused) for outcome in outcomes)
            death, done = deaths[-1], done + len(deaths)
            on_progress(done, max(matched, done))
        return Replayed(matched, replayed, refused)

    async def _replay_batch(
        self, task_ids: Sequence[str], options: ReplayOptions, on_requeued: OnRequeued | None
    ) -> list[QueueError | None]:
        """Returns the error of each task, or None. The rows are locked, so that no clean-up removes them meanwhile.

        History must have caught up: a task that was purged in the store must not be replayed from its old row.
        """
        if not await self._lag.wait_until_caught_up(CATCH_UP_SECONDS):
            raise HistoryUnavailable("history is behind the queue, so dead letters may be out of date: try again")
        async with self._database.reading() as connection, connection.transaction():
            kept = await lock_tasks(connection, task_ids)
            present = dict(zip(task_ids, await self._queue.read_many(task_ids), strict=True))
            # In turn: replayed tasks rank as submitted now, and so keep their order of death.
            return [await self._replay(each, kept.get(each), present[each], options, on_requeued) for each in task_ids]

    async def _replay(
        self,
        task_id: str,
        kept: KeptTask | None,
        present: Task | None,
        options: ReplayOptions,
        on_requeued: OnRequeued | None,
    ) -> QueueError | None:
        if kept is None:
            return TaskNotFound(task_id)
        if present is not None and present.version != parse_record(kept.record).number("version"):
            return WrongState(task_id, present.state)
        stored = None if present else kept
        try:
            await self._queue.replay(
                task_id,
                keeps_budgets=options.keeps_budgets,
                priority=options.priority,
                kept=stored,
                on_requeued=on_requeued,
            )
        except UnknownPriority:
            raise
        except (Refused, TaskNotFound, WrongState) as error:
            return error
        return None
