"""Which partitions a claim looks at: all of a few, some of many.

Its worker's home is always among those: what other partitions have to let its next claim know is written there.
"""

import random
import time
import zlib
from collections.abc import Callable, Sequence

MAX_LOOKS = 8
EVERY = 16
"""One claim of so many looks everywhere, so that no partition waits for chance."""
MAX_REMEMBERED = 10_000


def home_of(worker_id: str, partition_count: int) -> int:
    return zlib.crc32(worker_id.encode()) % partition_count


class PartitionSampler:
    """`max_silence_seconds`: a worker shows itself everywhere at least as often, or it would be given up there."""

    def __init__(
        self, partition_count: int, max_silence_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._partition_count = partition_count
        self._max_silence_seconds = max_silence_seconds
        self._clock = clock
        self._claims = 0
        self._shown_at: dict[str, float] = {}

    def choose(self, partitions: Sequence[int], worker_id: str) -> Sequence[int]:
        if len(partitions) <= MAX_LOOKS:
            return partitions
        self._claims += 1
        now = self._clock()
        is_silent = now - self._shown_at.get(worker_id, 0.0) > self._max_silence_seconds
        if not is_silent and self._claims % EVERY:
            home = home_of(worker_id, self._partition_count)
            return sorted(partitions, key=lambda each: (each != home, random.random()))[:MAX_LOOKS]
        if len(self._shown_at) >= MAX_REMEMBERED:
            self._shown_at.clear()
        self._shown_at[worker_id] = now
        return partitions
