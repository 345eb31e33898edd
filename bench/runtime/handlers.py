"""Handlers that do nothing, on the event loop and in a thread, so that only the worker around them is measured."""

import os
import time
from pathlib import Path

from tideq import task


@task(name="on-loop")
async def on_loop(n: int) -> int:
    return n


@task(name="in-thread")
def in_thread(n: int) -> int:
    return n


@task(name="pickup")
def pickup(submitted_ns: int) -> None:
    """Both processes run on one machine, so their clocks agree."""
    with Path(os.environ["BENCH_PICKUPS"]).open("a") as file:
        file.write(f"{(time.time_ns() - submitted_ns) / 1e6}\n")
