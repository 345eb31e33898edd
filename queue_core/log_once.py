"""Logs a repeated condition once per interval."""

import time
from collections.abc import Callable

MAX_KINDS = 1_000


class LogOnce:
    def __init__(self, again_after_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._again_after_seconds = again_after_seconds
        self._clock = clock
        self._seen_at: dict[str, float] = {}

    def is_new(self, kind: str) -> bool:
        """Whether to log this kind now; the answer is False for the following interval."""
        now = self._clock()
        if now - self._seen_at.get(kind, -self._again_after_seconds) < self._again_after_seconds:
            return False
        if len(self._seen_at) >= MAX_KINDS:
            self._seen_at.clear()
        self._seen_at[kind] = now
        return True

    def forget(self) -> None:
        self._seen_at.clear()
