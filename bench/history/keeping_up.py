"""Measures whether a replicator keeps up with the fastest load of this machine, through the engine and over HTTP."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from bench.figures import Figure, Findings, Plan, Table, Target, figure, take_turns
from bench.history.processes import load, replicating
from bench.history.stores import Stores
from bench.history.watching import Watch
from bench.history.work import BATCH, Lives
from bench.http import jobs
from bench.http.processes import api
from bench.http.processes import load as load_over_http

EVENTS_A_LIFE = 4
MAX_BACKLOG_SECONDS = 1.0
ENGINE, HTTP = "engine, one process", "HTTP, one client and one service"
Drive = Callable[[int], Awaitable[float]]
"""Takes a number of tasks from submission to completion; returns the seconds it took."""


class Round(NamedTuple):
    alone_tasks_per_second: float
    tasks_per_second: float
    """While a replicator runs."""
    backlog_halfway: float
    """Events not yet in history."""
    backlog: float
    backlog_seconds: float
    """The backlog at the end of the load, as seconds of that load."""
    replicator_us: float
    backend_us: float


class Lived(NamedTuple):
    """Findings, and the best rates of whole lives over HTTP: without a replicator, and with one."""

    findings: Findings
    alone: float
    replicated: float


async def measure(stores: Stores, plan: Plan) -> Lived:
    with api(stores.server.url, stores.database_url) as service:
        drives: dict[str, Drive] = {ENGINE: partial(_by_engine, stores), HTTP: partial(_by_http, service.port)}
        variants = {name: partial(_round, stores, drive, plan.history_tasks) for name, drive in drives.items()}
        samples = await take_turns(plan.rounds, variants)
    left = max(_column(rounds, "backlog_seconds").median for rounds in samples.values())
    target = Target("backlog at the end of the fastest load, as seconds of it", MAX_BACKLOG_SECONDS, left, "s")
    alone = max(each.alone_tasks_per_second for each in samples[HTTP])
    replicated = max(each.tasks_per_second for each in samples[HTTP])
    return Lived(Findings((_table(plan, samples),), (target,)), alone, replicated)


async def _round(stores: Stores, drive: Drive, tasks: int) -> Round:
    alone = tasks / await drive(tasks)
    async with replicating(stores):
        await Watch(stores).caught_up()
    return await _beside(stores, drive, tasks, alone)


async def _beside(stores: Stores, drive: Drive, tasks: int, alone: float) -> Round:
    watch = Watch(stores)
    await watch.drop_replicated()
    async with replicating(stores) as replicator:
        cpu = replicator.cpu_us()
        async with watch.backlogs(BATCH) as backlogs:
            rate = tasks / await drive(tasks)
        used = replicator.cpu_us()
        await watch.caught_up()
    halfway, backlog = backlogs[len(backlogs) // 2], backlogs[-1]
    replicated = tasks * EVENTS_A_LIFE - backlog
    replicator_us, backend_us = ((after - before) / replicated for after, before in zip(used, cpu, strict=True))
    return Round(alone, rate, halfway, backlog, backlog / rate / EVENTS_A_LIFE, replicator_us, backend_us)


async def _by_engine(stores: Stores, tasks: int) -> float:
    return (await load(stores, Lives(tasks))).seconds


async def _by_http(port: int, tasks: int) -> float:
    return (await load_over_http(jobs.Lives(port, tasks // BATCH))).seconds


def _table(plan: Plan, samples: dict[str, list[Round]]) -> Table:
    rows = tuple((name, *(_column(rounds, field) for field in Round._fields)) for name, rounds in samples.items())
    columns = (
        "load", "tasks/s, no replicator", "tasks/s, replicated", "events behind, halfway", "at the end",
        "in seconds of load", "replicator, µs an event", "its backend",
    )  # fmt: skip
    note = f"{plan.history_tasks:_} whole lives in batches of {BATCH}; load, store and replicator share the machine."
    return Table("Keeping up with the fastest load", columns, rows, note)


def _column(rounds: list[Round], field: str) -> Figure:
    return figure([getattr(each, field) for each in rounds])
