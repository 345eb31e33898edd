"""Waiting longer after each failure in a row, and never in step with other workers."""

import asyncio
import random

FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 5.0
MAX_TOLD_SECONDS = 30.0


class Backoff:
    def __init__(self) -> None:
        self._delay = FIRST_DELAY_SECONDS

    def restore(self) -> None:
        """It went well: the next failure is the first again."""
        self._delay = FIRST_DELAY_SECONDS

    async def wait(self, told_seconds: float | None = None) -> None:
        """As long as the service asked for, within reason, or longer than the last time."""
        delay = self._delay
        if told_seconds is not None:
            delay = min(max(told_seconds, FIRST_DELAY_SECONDS), MAX_TOLD_SECONDS)
        self._delay = min(self._delay * 2, MAX_DELAY_SECONDS)
        await asyncio.sleep(delay * random.uniform(0.75, 1.25))
