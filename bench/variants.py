"""The real life cycle on stores with different allocators.

They take many turns on the same stores: what a fresh heap does well it may do badly once it has been used.
"""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from ctypes.util import find_library
from functools import partial
from pathlib import Path

from bench.figures import Findings, Plan, Table, figure, ratio, take_turns
from bench.lifecycle import life_us, live
from bench.server import BenchServer, Servers

BATCH = 100
KEPT_IN_ARENA = {
    "trim_threshold": 268_435_456,
    "top_pad": 16_777_216,
    "mmap_threshold": 33_554_432,
}
LONG_CACHE = {"tcache_count": 20_000, "mxfast": 0, **KEPT_IN_ARENA}


async def one_life(server: BenchServer, task_count: int) -> float:
    """Each on an emptied store, so that none grows."""
    await server.clear()
    return life_us(await live(server, await server.engine(), BATCH, task_count))


async def measure_allocators(servers: Servers, plan: Plan) -> Findings:
    with ExitStack() as running:
        started = {
            name: running.enter_context(servers.start(environ=environ or None)) for name, environ in _environs().items()
        }
        samples = await take_turns(plan.churn_rounds, _lives(started, plan))
    base = samples["as built"]
    some = max(1, plan.churn_rounds // 3)
    rows = tuple(
        (name, figure(lives[:some]), figure(lives[-some:]), ratio(lives[-some:], base[-some:]))
        for name, lives in samples.items()
    )
    columns = ("allocator", "µs a life, first rounds", "last rounds", "ratio, last rounds")
    note = f"{plan.churn_rounds} rounds of {plan.churn_tasks:_} tasks, the store emptied before each."
    return Findings((Table("Allocator", columns, rows, note),))


def _lives(started: dict[str, BenchServer], plan: Plan) -> dict[str, Callable[[], Awaitable[float]]]:
    return {name: partial(one_life, server, plan.churn_tasks) for name, server in started.items()}


def _environs() -> dict[str, dict[str, str]]:
    environs = {
        "as built": dict[str, str](),
        "libc, long thread cache": {"GLIBC_TUNABLES": _tunables(LONG_CACHE)},
        "libc, memory kept": {"GLIBC_TUNABLES": _tunables(KEPT_IN_ARENA)},
    }
    if jemalloc := _jemalloc():
        environs["jemalloc, preloaded"] = {"LD_PRELOAD": jemalloc}
    return environs


def _tunables(values: dict[str, int]) -> str:
    return ":".join(f"glibc.malloc.{name}={value}" for name, value in values.items())


def _jemalloc() -> str | None:
    """Where the dynamic loader finds it; a bare name would do, but a missing one is only a warning in a log."""
    name = find_library("jemalloc")
    folders = (Path("/lib/x86_64-linux-gnu"), Path("/lib/aarch64-linux-gnu"), Path("/usr/lib64"), Path("/usr/lib"))
    return next((str(folder / name) for folder in folders if name and (folder / name).exists()), None)
