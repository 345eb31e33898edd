"""What the worker of the browser tests can do; a test steers it with files in a folder both know."""

import asyncio
import os
from pathlib import Path

from tideq import Fail, TaskContext, task

FOLDER = Path(os.environ.get("BROWSER_TESTS_FOLDER", "."))
LOOK_SECONDS = 0.02


@task
def hello(name: str = "tide", number: int = 0) -> dict[str, object]:
    return {"greeting": f"Hello, {name}!", "number": number}


@task(max_retries=0)
def fragile(number: int = 0) -> str:
    """Fails for good until somebody has mended it."""
    if not (FOLDER / "mended").exists():
        raise Fail(f"part {number} is broken")
    return "mended"


@task(max_retries=0)
def flaky(number: int = 0) -> str:
    """Dies of something that trying again might mend."""
    if not (FOLDER / "calm").exists():
        raise RuntimeError(f"upstream host-{number} timed out after {number * 7} ms")
    return "calm"


@task
async def slow(ctx: TaskContext, until: str) -> str:
    """Runs until a file of this name is there."""
    ctx.progress(42, "waiting for a sign")
    while not (FOLDER / until).exists():
        await asyncio.sleep(LOOK_SECONDS)
    return "seen"
