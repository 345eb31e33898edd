"""Which partitions a claim peeks at: all of a few, some of many.

The worker's home is always among them: other partitions write there what the worker's next claim must take into
account.
"""

import random
import time
import zlib
from collections.abc import Callable, Sequence

MAX_PEEKS = 8
EVERY = 16
"""Of so many claims one peeks at all partitions, so that no partition depends on chance."""
MAX_REMEMBERED = 10_000


def home_of(worker_id: str, partition_count: int) -> int:
    return zlib.crc32(worker_id.encode()) % partition_count


class PartitionSampler:
    """`max_silence_seconds`: a worker peeks at all partitions at least as often, or they would declare it dead."""

    def __init__(
        self, partition_count: int, max_silence_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._partition_count = partition_count
        self._max_silence_seconds = max_silence_seconds
        self._clock = clock
        self._claims = 0
        self._seen_at: dict[str, float] = {}

    def choose(self, partitions: Sequence[int], worker_id: str) -> Sequence[int]:
        if len(partitions) <= MAX_PEEKS:
            return partitions
        self._claims += 1
        now = self._clock()
        is_silent = now - self._seen_at.get(worker_id, 0.0) > self._max_silence_seconds
        if not is_silent and self._claims % EVERY:
            home = home_of(worker_id, self._partition_count)
            return sorted(partitions, key=lambda each: (each != home, random.random()))[:MAX_PEEKS]
        if len(self._seen_at) >= MAX_REMEMBERED:
            self._seen_at.clear()
        self._seen_at[worker_id] = now
        return partitions
