"""Handlers that write down what they do, for real worker processes: tests copy this file next to where they run.

The ledger is a file that only grows, a line a write, so that nothing a killed process did is lost.
"""

import asyncio
import dataclasses
import datetime
import os
import signal
import threading
import time
from typing import Annotated, Any

import msgspec

from tideq.workers.runtime.context import TaskContext
from tideq.workers.runtime.failures import Discard, Fail, Retry
from tideq.workers.runtime.handlers import Handler, HandlerOptions
from tideq.workers.runtime.registry import registered

LEDGER = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event: str, **facts: Any) -> None:
    line = {"event": event, "pid": os.getpid(), "at": time.monotonic(), **facts}
    os.write(LEDGER, msgspec.json.encode(line) + b"\n")


def told(ctx: TaskContext) -> dict[str, Any]:
    return {"task_id": ctx.task_id, "attempt": ctx.attempt}


def short(ctx: TaskContext, seconds: float = 0.01) -> str:
    """The same answer at every attempt would hide whose was accepted."""
    note("start", **told(ctx))
    time.sleep(seconds)
    note("end", **told(ctx))
    return f"{os.getpid()}-{ctx.attempt}"


async def short_async(ctx: TaskContext, seconds: float = 0.01) -> str:
    note("start", **told(ctx))
    await asyncio.sleep(seconds)
    note("end", **told(ctx))
    return f"{os.getpid()}-{ctx.attempt}"


def until_file(ctx: TaskContext, path: str) -> str:
    """Runs until the test says so, deaf to its context."""
    note("start", **told(ctx))
    while not os.path.exists(path):
        time.sleep(0.01)
    note("end", is_cancelled=ctx.is_cancelled, **told(ctx))
    return f"{os.getpid()}-{ctx.attempt}"


def attentive(ctx: TaskContext, seconds: float = 60.0) -> None:
    """Looks at its context all the time."""
    note("start", **told(ctx))
    is_cancelled = ctx.wait(seconds)
    note("end", is_cancelled=is_cancelled, **told(ctx))
    ctx.check_cancelled()


async def attentive_async(ctx: TaskContext, seconds: float = 60.0) -> None:
    note("start", **told(ctx))
    try:
        await asyncio.sleep(seconds)
    finally:
        note("end", is_cancelled=ctx.is_cancelled, **told(ctx))


def compute(seconds: float) -> int:
    """In a child process; no context there."""
    note("start", seconds=seconds)
    end = time.monotonic() + seconds
    turns = 0
    while time.monotonic() < end:
        turns += 1
    note("end", seconds=seconds)
    return os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hog(ctx: TaskContext, path: str) -> str:
    """Holds the interpreter as well as Python code can; looking for a file lets go of it, so it looks seldom."""
    note("start", **told(ctx))
    while not os.path.exists(path):
        for _ in range(1_000):
            sum(range(10_000))
    return "done"


async def block(ctx: TaskContext, path: str) -> str:
    return until_file(ctx, path)


def report(ctx: TaskContext, path: str) -> None:
    for percent in range(1_001):
        ctx.progress(percent / 20, f"step {percent}")
    until_file(ctx, path)


def prolong(ctx: TaskContext, seconds: float, by: float) -> str:
    ctx.extend(by)
    note("start", **told(ctx))
    time.sleep(seconds)
    note("end", is_cancelled=ctx.is_cancelled, **told(ctx))
    return "done"


def babble(ctx: TaskContext) -> str:
    """Says what no service takes; all of it must be mended or refused on this side."""
    ctx.progress(float("nan"), "\0 \ud800")
    ctx.progress(-5, "x" * 5_000)
    for seconds in (0, -1, float("inf"), float("nan")):
        try:
            ctx.extend(seconds)
        except ValueError:
            continue
        return f"extended by {seconds}"
    return "done"


class Size(msgspec.Struct):
    width: int
    height: int = 480


@dataclasses.dataclass
class Crop:
    size: Size
    at: datetime.datetime


def checked(
    size: Size,
    crops: list[Crop],
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 50,
    label: str | None = None,
    **rest: Any,
) -> dict[str, Any]:
    return {"size": size, "crops": crops, "percent": percent, "label": label, "rest": rest}


def add(a: int, b: int = 2) -> int:
    return a + b


async def add_async(a: int, b: int = 2) -> int:
    return a + b


def add_in_process(a: int, b: int = 2) -> int:
    return a + b


FAILURES: dict[str, BaseException] = {
    "error": RuntimeError("it broke"),
    "retry": Retry("busy", code="RATE_LIMIT", details={"host": "10.0.0.7"}),
    "fail": Fail("never", code="NO_SUCH_USER"),
    "discard": Discard("not for us", code="STRANGE"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "cancelled": asyncio.CancelledError(),
    "strange": RuntimeError("nul \0, half a pair \ud800"),
}


def fail(how: str) -> None:
    raise FAILURES[how]


async def fail_async(how: str) -> None:
    raise FAILURES[how]


def fail_in_process(how: str) -> None:
    raise FAILURES[how]


RESULTS: dict[str, Any] = {
    "object": object(),
    "nul": "a\0b",
    "surrogate": "\ud800",
    "large": "x" * 300_000,
    "number key": {(1, 2): 3},
}


def give(what: str) -> Any:
    if what == "deep":
        value: Any = 1
        for _ in range(100):
            value = [value]
        return value
    if what == "endless":
        loop: list[Any] = []
        loop.append(loop)
        return loop
    return RESULTS[what]


_busy_lock = threading.Lock()
_busy_count = 0


def crowd(ctx: TaskContext) -> int:
    """How many of it ran at once in this process."""
    global _busy_count
    with _busy_lock:
        _busy_count += 1
        count = _busy_count
    note("start", count=count, **told(ctx))
    time.sleep(0.02)
    with _busy_lock:
        _busy_count -= 1
    return count


async def tick(ctx: TaskContext) -> None:
    note("start", **told(ctx))


def whole(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


for handler in (
    *(Handler(function.__name__, function) for function in (short, short_async, until_file, attentive)),
    *(Handler(function.__name__, function) for function in (attentive_async, hog, block, report, prolong, babble)),
    *(Handler(function.__name__, function) for function in (checked, add, add_async, fail, fail_async, give)),
    *(Handler(function.__name__, function, in_process=True) for function in (compute, die)),
    *(Handler(function.__name__, function, in_process=True) for function in (add_in_process, fail_in_process)),
    Handler("whole", whole, takes="payload"),
    Handler("crowd", crowd, options=HandlerOptions(concurrency=3)),
    Handler("tick", tick, options=HandlerOptions(rate_per_second=10)),
    Handler("limited", tick),
):
    registered.add(handler)
