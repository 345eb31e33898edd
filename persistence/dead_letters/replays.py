"""Replaying dead letters, one or all that match a filter.

A replay is conditional on the task still being dead of the same death: pressed twice, it gives one new life. It works
for tasks whose record has left the store. Killed in the middle it has replayed a part, and can simply be run again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tideq.persistence.database import Database
from tideq.persistence.dead_letters.letters import DeadLetterFilter, DeadLetters, Death
from tideq.persistence.reading.freshness import Fresh
from tideq.persistence.reading.history import hold
from tideq.queue_core.engine.queue import KeptTask, OnRevived, Queue
from tideq.queue_core.engine.record import parse_record
from tideq.queue_core.errors import HistoryUnavailable, QueueError, Refused, TaskNotFound, UnknownPriority, WrongState
from tideq.queue_core.task import Task

BATCH_SIZE = 100
CATCH_UP_SECONDS = 2.0


class Replayed(NamedTuple):
    matched: int
    replayed: int
    refused: int = 0
    """Could not be taken back, for instance because no lane is free. The others came back to life some other way."""


class Terms(NamedTuple):
    """How a task starts its new life."""

    keeps_budgets: bool = False
    priority: str | None = None


AS_BEFORE = Terms()


class Replays:
    def __init__(self, database: Database, dead_letters: DeadLetters, queue: Queue, freshness: Fresh) -> None:
        self._database = database
        self._dead_letters = dead_letters
        self._queue = queue
        self._freshness = freshness

    async def preview(self, wanted: DeadLetterFilter) -> Replayed:
        await self._freshness.catch_up(CATCH_UP_SECONDS)
        count, _ = await self._dead_letters.count(wanted)
        return Replayed(count, 0)

    async def run(
        self,
        wanted: DeadLetterFilter,
        terms: Terms = AS_BEFORE,
        on_progress: Callable[[int, int], None] = lambda done, matched: None,
        on_revived: OnRevived | None = None,
    ) -> Replayed:
        """Those that match now, the earliest death first; who dies meanwhile is left for the next time."""
        await self._freshness.catch_up(CATCH_UP_SECONDS)
        matched, last_ms = await self._dead_letters.count(wanted)
        replayed = refused = done = 0
        death: Death | None = None
        while last_ms is not None:
            deaths = await self._dead_letters.next_deaths(wanted, death, last_ms, BATCH_SIZE)
            if not deaths:
                break
            outcomes = await self._replay_batch([str(each.task_id) for each in deaths], terms, on_revived)
            replayed += outcomes.count(None)
            refused += sum(isinstance(outcome, Refused) for outcome in outcomes)
            death, done = deaths[-1], done + len(deaths)
            on_progress(done, max(matched, done))
        return Replayed(matched, replayed, refused)

    async def _replay_batch(
        self, task_ids: Sequence[str], terms: Terms, on_revived: OnRevived | None
    ) -> list[QueueError | None]:
        """What each was refused for, if it was. Their rows are held, so that no clean-up takes them away meanwhile.

        History must not still show what was purged in the store: reviving that from here would be a resurrection.
        """
        if not await self._freshness.catch_up(CATCH_UP_SECONDS):
            raise HistoryUnavailable("history is behind the queue and cannot tell yet what is dead: try again")
        async with self._database.reading() as connection, connection.transaction():
            kept = await hold(connection, task_ids)
            present = dict(zip(task_ids, await self._queue.read_many(task_ids), strict=True))
            # One after the other: they rank as submitted now, and so keep the order they died in.
            return [await self._replay(each, kept.get(each), present[each], terms, on_revived) for each in task_ids]

    async def _replay(
        self, task_id: str, kept: KeptTask | None, present: Task | None, terms: Terms, on_revived: OnRevived | None
    ) -> QueueError | None:
        if kept is None:
            return TaskNotFound(task_id)
        if present is not None and present.version != parse_record(kept.record).number("version"):
            return WrongState(task_id, present.state)
        options = {"keeps_budgets": terms.keeps_budgets, "priority": terms.priority, "on_revived": on_revived}
        try:
            await self._queue.replay(task_id, **options, kept=None if present else kept)
        except UnknownPriority:
            raise
        except (Refused, TaskNotFound, WrongState) as error:
            return error
        return None
