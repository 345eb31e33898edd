"""Handlers of fifty task types that all fail, after the duration of a healthy task."""

import asyncio

from bench.circuits import BROKEN, SECONDS
from tideq import task


async def broken() -> None:
    await asyncio.sleep(SECONDS)
    raise RuntimeError("always")


for name in BROKEN:
    task(name=name)(broken)
