"""Two sides of a race, each with a connection and an engine of its own, fired together from positions drawn by lot."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

from tests.kit import Kit
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.errors import QueueError
from tideq.queue_core.task import ClaimedTask, NewTask

ROUNDS = 200
MAX_HANDICAP = 4

L = TypeVar("L")
R = TypeVar("R")
T = TypeVar("T")


class Sides(NamedTuple):
    left: Kit
    right: Kit
    luck: random.Random

    async def race(self, left: Awaitable[L], right: Awaitable[R]) -> tuple[L | QueueError, R | QueueError]:
        """What each side was answered: a value, or the error that refused it."""
        handicaps = self.luck.choices(range(MAX_HANDICAP), k=2)
        answers = await asyncio.gather(attempt(left, handicaps[0]), attempt(right, handicaps[1]))
        return answers[0], answers[1]

    async def executing(self, count: int = ROUNDS, **fields: int) -> list[ClaimedTask]:
        """So many tasks that `w1` has started."""
        tasks = await self.assigned(count, **fields)
        for outcome in await self.left.attempts.start("w1", [LeaseRef(task.task_id, task.lease) for task in tasks]):
            outcome.unwrap()
        return tasks

    async def assigned(self, count: int = ROUNDS, **fields: int) -> list[ClaimedTask]:
        """So many new tasks in the hands of `w1`. Nothing else may be ready."""
        task = NewTask(task_type="resize", **fields)  # pyright: ignore[reportArgumentType]
        await self.left.queue.submit_many([task] * count)
        tasks = (await self.left.queue.claim("w1", count)).tasks
        assert len(tasks) == count
        return list(tasks)


async def attempt(move: Awaitable[T], handicap: int = 0) -> T | QueueError:
    for _ in range(handicap):
        await asyncio.sleep(0)
    try:
        return await move
    except QueueError as error:
        return error


def assert_contested(wins: Counter[str], *outcomes: str, rounds: int = ROUNDS) -> None:
    """Every round had an outcome, and each of those possible came up: it was a race."""
    assert set(wins) == set(outcomes), wins
    assert wins.total() == rounds
