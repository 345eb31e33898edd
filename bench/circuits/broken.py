"""Tasks of fifty types that all fail, after as long as healthy ones take."""

import asyncio

from bench.circuits import BROKEN, SECONDS
from tideq import task


async def broken() -> None:
    await asyncio.sleep(SECONDS)
    raise RuntimeError("always")


for name in BROKEN:
    task(name=name)(broken)
