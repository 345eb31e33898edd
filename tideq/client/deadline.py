"""The deadline of a caller that waits."""

import time
from collections.abc import Callable

MAX_POLL_SECONDS = 30.0
"""The longest wait that the service accepts in one request."""
PAUSE_SECONDS = 0.1


class Deadline:
    """Starts with its creation; None never ends."""

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
        """Seconds to wait in the next request."""
        left = self.left
        return MAX_POLL_SECONDS if left is None else min(left, MAX_POLL_SECONDS)

    @property
    def pause_seconds(self) -> float:
        """Pause before the next request: a service that is closing answers at once and must not be polled in a loop."""
        left = self.left
        return PAUSE_SECONDS if left is None else min(left, PAUSE_SECONDS)
