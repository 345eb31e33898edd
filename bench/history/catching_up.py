"""Measures how fast a replicator processes the events written while none ran."""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench.figures import Figure, Findings, Plan, Table, Target, figure, take_turns
from bench.history.processes import load, replicating
from bench.history.stores import Rated, Stores, postgres_cpu
from bench.history.watching import Watch
from bench.history.work import Failures, Lives, Steps, Work

WHOLE = "whole lives"
LEAST_RATIO = 3
BACKLOGS: dict[str, Callable[[int], Work]] = {
    WHOLE: Lives,
    "lives in steps": Steps,
    "tagged, ending with an error": Failures,
}


class Drain(NamedTuple):
    """The replication of one backlog; CPU in µs an event."""

    events_per_second: float
    tasks_per_second: float
    replicator_us: float
    backend_us: float
    postgres_us: float
    store_us: float


async def measure(stores: Stores, plan: Plan) -> Rated:
    variants = {name: partial(drain, stores, backlog(plan.history_tasks)) for name, backlog in BACKLOGS.items()}
    samples = await take_turns(plan.rounds, variants)
    rows = tuple((name, *_figures(drains)) for name, drains in samples.items())
    columns = ("backlog", "events/s", "tasks/s", "replicator, µs an event", "its backend", "all PostgreSQL", "store")
    note = f"{plan.history_tasks:_} tasks of four events. In steps no life fits into a batch: every event is a write."
    table = Table("Catching up: `tideq replicate` with a backlog", columns, rows, note)
    return Rated(Findings((table,)), max(each.tasks_per_second for each in samples[WHOLE]))


def target(caught_up: float, lived: float, kind: str) -> Target:
    """Both rates are tasks a second."""
    name = f"{LEAST_RATIO} × the rate of whole lives over HTTP, {kind}, in rates of catching up"
    return Target(name, 1.0, LEAST_RATIO * lived / caught_up, "×")


async def drain(stores: Stores, work: Work) -> Drain:
    watch, postgres = Watch(stores), await postgres_cpu(stores)
    await watch.drop_replicated()
    await load(stores, work)
    before = await watch.checkpoint()
    async with replicating(stores) as replicator:
        began, cpu, store = time.perf_counter(), (*replicator.cpu_us(), postgres.us()), await stores.server.cpu()
        reached = await watch.caught_up()
        seconds = time.perf_counter() - began
        used = zip((*replicator.cpu_us(), postgres.us()), cpu, strict=True)
        store_us = (await stores.server.cpu()).main_us - store.main_us
    events = reached.event_count - before.event_count
    replicator_us, backend_us, postgres_us = ((after - before) / events for after, before in used)
    rates = (events / seconds, work.tasks / seconds)
    return Drain(*rates, replicator_us, backend_us, postgres_us, store_us / events)


def _figures(drains: list[Drain]) -> list[Figure]:
    return [figure(column) for column in zip(*drains, strict=True)]
