"""Reads tasks that the store has expired. Live tasks must be read from the store.

Decisions wait until history has caught up: it may still show a task that was purged a moment ago.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from tideq.persistence.read.lag import HistoryLag
from tideq.persistence.read.tasks import TaskReader, TransitionRow
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.partitioning.absent_tasks import AbsentTasks
from tideq.queue_core.task import Task
from tideq.queue_core.task_id import is_task_id

SOON_SECONDS = 0.2
CATCH_UP_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 0.02


class Trail(NamedTuple):
    """A task's transitions, and the age of the oldest one that history lacks; 0 if it lacks none."""

    transitions: list[TransitionRow]
    lag_ms: int


class ExpiredTasks:
    def __init__(self, history: TaskReader, lag: HistoryLag, absent_tasks: AbsentTasks) -> None:
        self._tasks = history
        self._lag = lag
        self._absent_tasks = absent_tasks

    async def find(self, task_id: str) -> Task | None:
        await self._lag.wait_until_caught_up(SOON_SECONDS)
        return await self._tasks.find(task_id)

    async def trail(self, task: Task) -> Trail:
        """Returns the task's transitions. Waits up to CATCH_UP_SECONDS for those up to the task's version."""
        deadline = asyncio.get_running_loop().time() + CATCH_UP_SECONDS
        while True:
            transitions = await self._tasks.transitions(task.task_id)
            if transitions and transitions[-1].version >= task.version:
                return Trail(transitions, 0)
            if asyncio.get_running_loop().time() >= deadline:
                last_ms = task.now_ms - task.state_since_ms
                return Trail(transitions, max(await self._lag.lag_ms(task.now_ms), last_ms, 1))
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    @contextlib.asynccontextmanager
    async def locked(self, task_id: str) -> AsyncGenerator[KeptTask | None]:
        """Yields what a retry or replay needs; see `TaskReader.locked`. Raises HistoryUnavailable if history lags."""
        await self._require_caught_up()
        async with self._tasks.locked(task_id) as kept:
            yield kept

    async def find_expired(self, task_ids: Sequence[str]) -> dict[str, Task]:
        """Returns those of these tasks, with ids chosen by their submitters, that history has and the store has not.

        Raises HistoryUnavailable: only history can show that a task ran already, because the time inside a chosen id
        comes from a clock that may be wrong.
        """
        task_ids = [task_id for task_id in task_ids if is_task_id(task_id)]
        if not task_ids or not await self._tasks.find_many(task_ids):
            return {}
        await self._require_caught_up()
        found = await self._tasks.find_many(task_ids)
        absent = await self._absent_tasks.among(list(found))
        return {task_id: task for task_id, task in found.items() if task_id in absent}

    async def _require_caught_up(self) -> None:
        if not await self._lag.wait_until_caught_up(CATCH_UP_SECONDS):
            raise HistoryUnavailable("history is behind the queue: try again")
