"""A token bucket on this process's clock: so many a second, as many at once as one second allows."""

import time
from collections.abc import Callable

NEARLY = 1e-9
"""Sums of fractions come out short: what is missing so little is there."""


class Rate:
    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        if per_second <= 0:
            raise ValueError(f"a rate of {per_second} a second never lets anything through")
        self._per_second = per_second
        self._burst = max(per_second, 1.0)
        self._clock = clock
        self._tokens = self._burst
        self._filled_at = clock()

    def available(self) -> int:
        """How many may go now."""
        self._fill()
        return int(self._tokens + NEARLY)

    def spend(self, count: int) -> None:
        """What came in since the last look counts only as far as there was room for it."""
        self._fill()
        self._tokens -= count

    def seconds_until_one(self) -> float:
        return 0.0 if self.available() >= 1 else (1 - self._tokens) / self._per_second

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._filled_at) * self._per_second, self._burst)
        self._filled_at = now
