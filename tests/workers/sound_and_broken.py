"""Tasks that take a moment each, and end well or always fail by their type, for real worker processes.

A test gives it two names, with a file each. Every call leaves a line when it begins, and one that ends well another, so
that whoever counts need not read them.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable

from tideq import task

SECONDS = 0.01
CALLS = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SOUND, BROKEN, ENDED = "sound", "broken", "ended"


def note(event: str) -> None:
    os.write(CALLS, f"{event} {time.monotonic():.6f}\n".encode())


async def sound() -> None:
    note(SOUND)
    await asyncio.sleep(SECONDS)
    note(ENDED)


async def broken() -> None:
    note(BROKEN)
    await asyncio.sleep(SECONDS)
    raise RuntimeError("always")


def add(kind: str, handler: Callable[[], Awaitable[None]]) -> None:
    """The types of this kind that the test names."""
    for name in json.loads(os.environ["TASK_TYPES"])[kind]:
        task(name=name)(handler)
