"""Which partitions answer.

A partition that did not answer is skipped for a moment, so that it delays one caller and not every one; then one caller
tries it again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tideq.queue_core.errors import StoreUnavailable, Unavailable

RETRY_SECONDS = 1.0

T = TypeVar("T")


class PartitionHealth:
    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._clock = clock
        self._away_until: dict[int, float] = {}

    @property
    def up(self) -> list[int]:
        """The partitions that answered their last call."""
        return [partition for partition in range(self._count) if partition not in self._away_until]

    def is_up(self, partition: int) -> bool:
        return partition not in self._away_until

    def retryable(self) -> list[int]:
        """The partitions that did not answer and may be tried again. Only this caller gets them, so it must try."""
        now = self._clock()
        found = [partition for partition, until in self._away_until.items() if until <= now]
        for partition in found:
            self._away_until[partition] = now + RETRY_SECONDS
        return found

    def available(self) -> list[int]:
        """The partitions that are up or may be tried again; all of them where there is none."""
        return sorted([*self.up, *self.retryable()]) or list(range(self._count))

    def record(self, partition: int, error: BaseException | None = None) -> None:
        if isinstance(error, Unavailable):
            self._away_until[partition] = self._clock() + RETRY_SECONDS
        elif partition in self._away_until:
            del self._away_until[partition]

    async def call(self, partitions: Sequence[int], call: Callable[[int], Awaitable[T]]) -> dict[int, T | Exception]:
        """Calls all at once; returns the result or the error of each."""
        results = await asyncio.gather(*map(call, partitions), return_exceptions=True)
        answers: dict[int, T | Exception] = {}
        for partition, each in zip(partitions, results, strict=True):
            if isinstance(each, BaseException) and not isinstance(each, Exception):
                raise each
            self.record(partition, each if isinstance(each, Exception) else None)
            answers[partition] = each
        return answers

    async def call_some(self, call: Callable[[int], Awaitable[T]]) -> dict[int, T]:
        """The results of all partitions that answer; raises the first error where none does."""
        answers = await self.call(self.available(), call)
        failures = [each for each in answers.values() if isinstance(each, Exception)]
        for error in failures:
            if not isinstance(error, Unavailable):
                raise error
        if len(failures) == len(answers):
            raise failures[0]
        return {partition: each for partition, each in answers.items() if not isinstance(each, Exception)}


def is_untouched(error: Unavailable) -> bool:
    """Whether it is certain that nothing was written: then the same call may go to another partition."""
    return not isinstance(error, StoreUnavailable) or error.is_untouched
