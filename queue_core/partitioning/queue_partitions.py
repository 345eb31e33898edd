"""The partitions of a queue: their scripts, which of them answer, and which one a task belongs to.

A queue with one partition is the case of a single entry; calls then go straight to it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tideq.queue_core.errors import Unavailable
from tideq.queue_core.partitioning.partition_health import PartitionHealth
from tideq.queue_core.partitioning.routing import Routing, by_task_id
from tideq.queue_core.scripts.runner import Scripts

T = TypeVar("T")
Row = TypeVar("Row")
Answered = TypeVar("Answered")


class QueuePartitions:
    def __init__(self, scripts: Sequence[Scripts], routing: Routing) -> None:
        self.scripts = scripts
        self.routing = routing
        self.health = PartitionHealth(len(scripts))

    @property
    def count(self) -> int:
        return len(self.scripts)

    async def call(
        self, partitions: Sequence[int], call: Callable[[Scripts], Awaitable[T]]
    ) -> dict[int, T | Exception]:
        """Calls these partitions at once; returns the result or the error of each."""
        return await self.health.call(partitions, lambda each: call(self.scripts[each]))

    async def call_known(self, call: Callable[[Scripts], Awaitable[T]]) -> dict[int, T | Exception]:
        """Calls the partitions that answered their last call, or all where none did."""
        return await self.call(self.health.up or range(self.count), call)

    async def call_some(self, call: Callable[[Scripts], Awaitable[T]]) -> dict[int, T]:
        """Returns the results of all partitions that answer; raises the first error where none does."""
        if self.count == 1:
            return {0: await call(self.scripts[0])}
        return await self.health.call_some(lambda each: call(self.scripts[each]))

    async def by_task_id(
        self,
        rows: Sequence[Row],
        id_of: Callable[[Row], str],
        call: Callable[[int, list[Row]], Awaitable[Sequence[Answered]]],
        is_missing: Callable[[Answered], bool],
    ) -> list[Answered]:
        """As `by_task_id` of routing.py."""
        if self.count == 1:
            return list(await call(0, list(rows)))
        return await by_task_id(self.routing, rows, id_of, call, is_missing)


def answers_of(results: dict[int, T | Exception]) -> list[T]:
    """Returns the results without the errors."""
    return [each for each in results.values() if not isinstance(each, Exception)]


def raise_unless_away(results: dict[int, T | Exception]) -> list[int]:
    """Returns the partitions that do not answer. Raises any other error, and the first where no partition answers."""
    failures = {partition: each for partition, each in results.items() if isinstance(each, Exception)}
    for error in failures.values():
        if not isinstance(error, Unavailable) or len(failures) == len(results):
            raise error
    return list(failures)
