"""Measures `tideq rebuild` after the store has lost everything, with the CPU of each process."""

import asyncio
import os
import sys
import time
from typing import NamedTuple

from bench.figures import Findings, Plan, Table, Target, figure
from bench.history.processes import environ_for, load, replicating
from bench.history.stores import Stores, history_stores, postgres_cpu
from bench.history.watching import Watch
from bench.history.work import Waits
from bench.server import Servers
from tideq.queue_core.scripts.keys import Keys

MAX_SECONDS = {100_000: 10.0, 1_000_000: 60.0}
MANY = 1_000_000


class Round(NamedTuple):
    """Seconds."""

    elapsed: float
    python: float
    postgres: float
    store: float


async def measure(servers: Servers, plan: Plan) -> Findings:
    samples = {count: await _rebuilds(servers, count, plan.history_rebuilds) for count in plan.history_live_tasks}
    rows = tuple(
        (f"{count:_}", *(figure(column) for column in zip(*rounds, strict=True))) for count, rounds in samples.items()
    )
    columns = ("live tasks", "seconds", "CPU: Python", "PostgreSQL", "store")
    note = "The whole command with its start; the store's CPU is that of the restoring script."
    return Findings((Table("`tideq rebuild` after FLUSHALL", columns, rows, note),), _targets(samples))


def _targets(samples: dict[int, list[Round]]) -> tuple[Target, ...]:
    """A short run does not rebuild a million tasks, so its target is extrapolated."""
    best = {count: min(each.elapsed for each in rounds) for count, rounds in samples.items()}
    reached = [
        Target(f"{count:_} tasks rebuilt", MAX_SECONDS[count], best[count], "s")
        for count in best
        if count in MAX_SECONDS
    ]
    if MANY not in best:
        largest = max(best)
        name = f"{MANY:_} tasks rebuilt, extrapolated from {largest:_}"
        reached.append(Target(name, MAX_SECONDS[MANY], best[largest] * MANY / largest, "s"))
    return tuple(reached)


async def _rebuilds(servers: Servers, count: int, rounds: int) -> list[Round]:
    async with history_stores(servers) as stores:
        async with replicating(stores):
            await load(stores, Waits(count))
            await Watch(stores).caught_up()
        return [await _rebuild(stores, count) for _ in range(rounds)]


async def _rebuild(stores: Stores, count: int) -> Round:
    await stores.server.clear()
    postgres, store = await postgres_cpu(stores), await stores.server.cpu()
    postgres_us, began = postgres.us(), time.perf_counter()
    python_seconds = await _run_rebuild(stores)
    elapsed, postgres_us = time.perf_counter() - began, postgres.us() - postgres_us
    store_us = (await stores.server.cpu()).main_us - store.main_us
    restored = await stores.server.client.zcard(Keys(stores.queue_name).key("queue"))
    if restored != count:
        raise RuntimeError(f"{restored} tasks were restored, {count} were there")
    return Round(elapsed, python_seconds, postgres_us / 1e6, store_us / 1e6)


async def _run_rebuild(stores: Stores) -> float:
    """Returns its CPU seconds."""
    pid = _start((sys.executable, "-m", "tideq.cli", "rebuild"), environ_for(stores))
    _, status, used = await asyncio.to_thread(os.wait4, pid, 0)
    if status:
        raise RuntimeError("`tideq rebuild` failed; see its error above")
    return used.ru_utime + used.ru_stime


def _start(command: tuple[str, ...], environ: dict[str, str]) -> int:
    """Started without subprocess, which would wait for it: only one waiter gets the CPU times."""
    return os.posix_spawn(command[0], command, environ)
