"""Waits longer after each failure in a row, with jitter so that workers do not retry in step."""

import asyncio
import random

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 5.0
MAX_RETRY_AFTER_SECONDS = 30.0


class PollBackoff:
    def __init__(self) -> None:
        self._delay = FIRST_DELAY_SECONDS

    def reset(self) -> None:
        self._delay = FIRST_DELAY_SECONDS

    async def wait(self, retry_after_seconds: float | None = None) -> None:
        """Waits the Retry-After of the service, within bounds, else twice as long as the last time."""
        delay = self._delay
        if retry_after_seconds is not None:
            delay = min(max(retry_after_seconds, FIRST_DELAY_SECONDS), MAX_RETRY_AFTER_SECONDS)
        self._delay = min(self._delay * 2, MAX_DELAY_SECONDS)
        await asyncio.sleep(delay * random.uniform(0.75, 1.25))
