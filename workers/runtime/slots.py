"""Slots: how many tasks a consumer may hold at once, claimed or running."""

import asyncio
import contextlib


class Slots:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._taken = 0
        self._freed = asyncio.Event()

    @property
    def free(self) -> int:
        return self.capacity - self._taken

    def acquire(self, count: int) -> None:
        self._taken += count

    def release(self, count: int = 1) -> None:
        self._taken -= count
        self._freed.set()

    async def wait_for_one(self) -> None:
        while self.free <= 0:
            await self._change()

    async def wait_for_all(self, seconds: float) -> None:
        """Returns after `seconds` also where slots are still taken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._taken:
                    await self._change()

    async def _change(self) -> None:
        self._freed.clear()
        await self._freed.wait()
