"""Handlers that do nothing, each in its own way: what is measured is everything around them."""

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
    """One clock for both ends: they are processes of one machine."""
    with Path(os.environ["BENCH_PICKUPS"]).open("a") as file:
        file.write(f"{(time.time_ns() - submitted_ns) / 1e6}\n")
