"""The handler of the healthy task type."""

import asyncio

from bench.circuits import HEALTHY, SECONDS
from tideq import task


@task(name=HEALTHY)
async def healthy() -> None:
    await asyncio.sleep(SECONDS)
