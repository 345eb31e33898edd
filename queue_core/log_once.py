"""What is told once, and not again and again while it lasts."""

import time
from collections.abc import Callable

MAX_KINDS = 1_000


class LogOnce:
    def __init__(self, again_after_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._again_after_seconds = again_after_seconds
        self._clock = clock
        self._told: dict[str, float] = {}

    def is_new(self, kind: str) -> bool:
        """Whether this kind was not told lately; from then on it was."""
        now = self._clock()
        if now - self._told.get(kind, -self._again_after_seconds) < self._again_after_seconds:
            return False
        if len(self._told) >= MAX_KINDS:
            self._told.clear()
        self._told[kind] = now
        return True

    def forget(self) -> None:
        self._told.clear()
