"""A token bucket on this process's clock; the burst is one second's worth of tokens."""

import time
from collections.abc import Callable

TOLERANCE = 1e-9
"""Tolerance: sums of fractions come out slightly short of a whole token."""


class Rate:
    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        if per_second <= 0:
            raise ValueError(f"a rate of {per_second} a second never lets anything through: it must be above 0")
        self._per_second = per_second
        self._burst = max(per_second, 1.0)
        self._clock = clock
        self._tokens = self._burst
        self._filled_at = clock()

    def available(self) -> int:
        self._fill()
        return int(self._tokens + TOLERANCE)

    def spend(self, count: int) -> None:
        """Fills up to the burst first, so tokens beyond it are lost."""
        self._fill()
        self._tokens -= count

    def seconds_until_one(self) -> float:
        return 0.0 if self.available() >= 1 else (1 - self._tokens) / self._per_second

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._tokens + (now - self._filled_at) * self._per_second, self._burst)
        self._filled_at = now
