"""How long a caller is still willing to wait."""

import time
from collections.abc import Callable

MAX_POLL_SECONDS = 30.0
"""The longest the service lets a caller wait in one go."""
PAUSE_SECONDS = 0.1


class Deadline:
    """Counts from its making; None is for ever."""

    def __init__(self, seconds: float | None, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._end = None if seconds is None else now() + seconds

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(self._end - self._now(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left == 0.0

    @property
    def next_poll(self) -> float:
        """How long to wait in one go."""
        left = self.left
        return MAX_POLL_SECONDS if left is None else min(left, MAX_POLL_SECONDS)

    @property
    def breath(self) -> float:
        """Before asking again: a service that is closing answers at once, and must not be asked in circles."""
        left = self.left
        return PAUSE_SECONDS if left is None else min(left, PAUSE_SECONDS)
