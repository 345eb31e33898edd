"""Tasks the store has forgotten. What it has not, only the store can speak for.

Before history's word is taken it must have caught up: it may still show a task that was purged a moment ago.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from tideq.persistence.reading.freshness import Fresh
from tideq.persistence.reading.history import History, TransitionRow
from tideq.persistence.schema.partitions import instant_of
from tideq.queue_core.engine.feed import Feed
from tideq.queue_core.engine.queue import KeptTask
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.task import Task
from tideq.queue_core.task_id import is_task_id

SOON_SECONDS = 0.2
CATCH_UP_SECONDS = 2.0
LOOK_AGAIN_SECONDS = 0.02


class Way(NamedTuple):
    """A task's transitions, and how old the oldest is that history does not have yet."""

    transitions: list[TransitionRow]
    lag_ms: int


class Recall:
    def __init__(self, history: History, freshness: Fresh, feed: Feed, result_ttl_ms: int) -> None:
        self._history = history
        self._freshness = freshness
        self._feed = feed
        self._result_ttl_ms = result_ttl_ms

    async def find(self, task_id: str) -> Task | None:
        await self._freshness.catch_up(SOON_SECONDS)
        return await self._history.find(task_id)

    async def way(self, task: Task) -> Way:
        """Waits a little until history knows what the task has been through."""
        deadline = asyncio.get_running_loop().time() + CATCH_UP_SECONDS
        while True:
            transitions = await self._history.transitions(task.task_id)
            if transitions and transitions[-1].version >= task.version:
                return Way(transitions, 0)
            if asyncio.get_running_loop().time() >= deadline:
                last_ms = task.now_ms - task.state_since_ms
                return Way(transitions, max(await self._freshness.lag_ms(task.now_ms), last_ms, 1))
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    @contextlib.asynccontextmanager
    async def holding(self, task_id: str) -> AsyncGenerator[KeptTask | None]:
        """What reviving it takes; see `History.holding`."""
        await self._must_catch_up()
        async with self._history.holding(task_id) as kept:
            yield kept

    async def forgotten(self, task_ids: Sequence[str]) -> dict[str, Task]:
        """Those of these tasks, whose ids their submitters chose, that were known once and are not in the store.

        An id made a moment ago stands for nothing that could have ended and been forgotten since: history is not asked
        for it, and need not be there.
        """
        task_ids = [task_id for task_id in task_ids if is_task_id(task_id) and not self._is_fresh(task_id)]
        if not task_ids or not await self._absent(list(await self._history.find_many(task_ids))):
            return {}
        await self._must_catch_up()
        found = await self._history.find_many(task_ids)
        absent = await self._absent(list(found))
        return {task_id: task for task_id, task in found.items() if task_id in absent}

    def _is_fresh(self, task_id: str) -> bool:
        """Within half the time that finished tasks stay in the store: the rest is for clocks that differ."""
        age_ms = time.time_ns() // 1_000_000 - instant_of(uuid.UUID(task_id))
        return abs(age_ms) < self._result_ttl_ms // 2

    async def _absent(self, task_ids: Sequence[str]) -> set[str]:
        return {task_id.decode() for task_id in await self._feed.absent([each.encode() for each in task_ids])}

    async def _must_catch_up(self) -> None:
        if not await self._freshness.catch_up(CATCH_UP_SECONDS):
            raise HistoryUnavailable("history is behind the queue and cannot tell yet: try again")
