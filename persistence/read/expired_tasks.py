"""Tasks the store has forgotten. What it has not, only the store can speak for.

Before history's word is taken it must have caught up: it may still show a task that was purged a moment ago.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from tideq.persistence.read.lag import CatchUp
from tideq.persistence.read.tasks import TaskReader, TransitionRow
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.queue import KeptTask
from tideq.queue_core.task import Task
from tideq.queue_core.task_id import is_task_id

SOON_SECONDS = 0.2
CATCH_UP_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 0.02


class Trail(NamedTuple):
    """A task's transitions, and how old the oldest is that history does not have yet."""

    transitions: list[TransitionRow]
    lag_ms: int


class ExpiredTasks:
    def __init__(self, history: TaskReader, freshness: CatchUp, feed: OutboxConsumer) -> None:
        self._history = history
        self._freshness = freshness
        self._feed = feed

    async def find(self, task_id: str) -> Task | None:
        await self._freshness.wait_until_caught_up(SOON_SECONDS)
        return await self._history.find(task_id)

    async def trail(self, task: Task) -> Trail:
        """Waits a little until history knows what the task has been through."""
        deadline = asyncio.get_running_loop().time() + CATCH_UP_SECONDS
        while True:
            transitions = await self._history.transitions(task.task_id)
            if transitions and transitions[-1].version >= task.version:
                return Trail(transitions, 0)
            if asyncio.get_running_loop().time() >= deadline:
                last_ms = task.now_ms - task.state_since_ms
                return Trail(transitions, max(await self._freshness.lag_ms(task.now_ms), last_ms, 1))
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    @contextlib.asynccontextmanager
    async def holding(self, task_id: str) -> AsyncGenerator[KeptTask | None]:
        """What reviving it takes; see `TaskReader.holding`."""
        await self._must_catch_up()
        async with self._history.holding(task_id) as kept:
            yield kept

    async def find_expired(self, task_ids: Sequence[str]) -> dict[str, Task]:
        """Those of these tasks, whose ids their submitters chose and the store does not have, that were known once.

        The time inside an id says nothing: the clock it came from may be off. Nobody but history can tell that a task
        ran already, so this raises HistoryUnavailable where it is away.
        """
        task_ids = [task_id for task_id in task_ids if is_task_id(task_id)]
        if not task_ids or not await self._history.find_many(task_ids):
            return {}
        await self._must_catch_up()
        found = await self._history.find_many(task_ids)
        absent = await self._absent(list(found))
        return {task_id: task for task_id, task in found.items() if task_id in absent}

    async def _absent(self, task_ids: Sequence[str]) -> set[str]:
        return {task_id.decode() for task_id in await self._feed.absent([each.encode() for each in task_ids])}

    async def _must_catch_up(self) -> None:
        if not await self._freshness.wait_until_caught_up(CATCH_UP_SECONDS):
            raise HistoryUnavailable("history is behind the queue and cannot tell yet: try again")
