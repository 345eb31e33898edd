"""Measures the rates of one API process: submissions by batch size, and whole lives through `sync`."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import msgspec

from bench.figures import Figure, Plan, Table, Target, figure, ratio, take_turns
from bench.http.jobs import SUBMISSION, Lives, Repeat
from bench.http.processes import ServerProcess, load
from bench.lifecycle import PAYLOAD
from bench.server import BenchServer

SUBMIT, BATCH = "/api/v1/tasks", "/api/v1/tasks/batch"
LIFE_BATCH = 100
REQUESTS_A_ROUND = 3
MAX_CPU_US = 40.0
MAX_LIFE_CPU_US = 60.0
"""Four transitions in three requests."""

ECHO, BATCH_100, BATCH_1000 = "empty echo", "submit 100", "submit 1 000"
FLOOR = "redis-py LPUSH, one by one, no service"
SINGLES = {"submit 1, one connection": 1, "submit 1": 16, "submit 1, 64 connections": 64}
"""Concurrent connections; submissions that arrive together share one call to the store."""
LIVES_1, LIVES_2 = "whole lives, one client", "whole lives, two clients"


class Round(NamedTuple):
    requests_per_second: float
    items_per_second: float
    """An item is a task, or an echo."""
    api_us: float
    """CPU of the server process for each item."""
    request_us: float
    store_us: float


class Rates(NamedTuple):
    tables: tuple[Table, ...]
    targets: tuple[Target, ...]
    lives_per_second: float
    """With one client process."""


async def measure(store: BenchServer, service: ServerProcess, empty: ServerProcess, plan: Plan) -> Rates:
    variants = _variants(store, service, empty, plan)
    for warm_up in variants.values():
        await warm_up()
    samples = await take_turns(plan.rounds, variants)
    submit_us, life_us = (figure([each.api_us for each in samples[name]]).median for name in (BATCH_100, LIVES_1))
    targets = (
        Target("CPU of the API process a task, submitted 100 at a time over HTTP", MAX_CPU_US, submit_us, "µs"),
        Target("CPU of the API process a task's whole life, 100 at a time over HTTP", MAX_LIFE_CPU_US, life_us, "µs"),
    )
    lives = figure([each.items_per_second for each in samples[LIVES_1]]).median
    return Rates((_rate_table(samples), _cpu_table(samples)), targets, lives)


def _variants(
    store: BenchServer, service: ServerProcess, empty: ServerProcess, plan: Plan
) -> dict[str, Callable[[], Awaitable[Round]]]:
    rounds = plan.http_tasks // LIFE_BATCH
    on_service = partial(measured, store, service)
    return {
        ECHO: partial(measured, store, empty, 1, repeat(empty, "/echo", 0, plan.http_requests)),
        FLOOR: partial(_floor, store, plan.http_requests),
        **{
            name: partial(on_service, 1, repeat(service, SUBMIT, 1, plan.http_requests, connections))
            for name, connections in SINGLES.items()
        },
        BATCH_100: partial(on_service, 100, repeat(service, BATCH, 100, plan.http_tasks // 100)),
        BATCH_1000: partial(on_service, 1_000, repeat(service, BATCH, 1_000, plan.http_tasks // 1_000)),
        LIVES_1: partial(on_service, LIFE_BATCH, Lives(service.port, rounds)),
        LIVES_2: partial(on_service, LIFE_BATCH, Lives(service.port, rounds), Lives(service.port, rounds)),
    }


async def _floor(store: BenchServer, times: int) -> Round:
    """The least cost of any queue on this store that receives one task at a time from one client."""
    began, before = time.perf_counter(), await store.cpu()
    for _ in range(times):
        await store.client.lpush("floor", PAYLOAD)
    seconds, store_us = time.perf_counter() - began, (await store.cpu()).main_us - before.main_us
    await store.client.delete("floor")
    return Round(times / seconds, times / seconds, 0, 0, store_us / times)


def repeat(server: ServerProcess, path: str, batch: int, times: int, connections: int = 0) -> Repeat:
    """Large batches use fewer connections, so that the number of tasks in flight stays similar."""
    body = {"tasks": [SUBMISSION] * batch} if path == BATCH else SUBMISSION if batch else {}
    connections = connections or (16 if batch <= 1 else 8 if batch <= 100 else 4)
    return Repeat(server.port, path, msgspec.json.encode(body).decode(), times, connections)


async def measured(store: BenchServer, server: ServerProcess, batch: int, *jobs: Repeat | Lives) -> Round:
    calls = sum(job.times if isinstance(job, Repeat) else job.rounds for job in jobs)
    before, store_before = server.cpu_us(), await store.cpu()
    taken = await load(*jobs)
    used, store_used = server.cpu_us() - before, (await store.cpu()).main_us - store_before.main_us
    items = calls * batch
    requests = calls * (REQUESTS_A_ROUND if isinstance(jobs[0], Lives) else 1)
    return Round(requests / taken.seconds, items / taken.seconds, used / items, used / requests, store_used / items)


def _rate_table(samples: dict[str, list[Round]]) -> Table:
    base, floor = ([each.requests_per_second for each in samples[name]] for name in (ECHO, FLOOR))
    rows = tuple(
        (
            name,
            figure([each.requests_per_second for each in rounds]),
            figure([each.items_per_second for each in rounds]),
            ratio([each.items_per_second for each in rounds], base),
            ratio([each.items_per_second for each in rounds], floor),
        )
        for name, rounds in samples.items()
    )
    note = "A life is three requests for 100 tasks: submit; results and claim; starts. Clients share the machine."
    columns = ("HTTP on loopback", "requests a second", "tasks a second", "tasks an echo", "… an LPUSH")
    return Table("Over HTTP, one API process", columns, rows, note)


def _cpu_table(samples: dict[str, list[Round]]) -> Table:
    base = [each.request_us for each in samples[ECHO]]
    rows = tuple((name, *_cpu_figures(rounds, base)) for name, rounds in samples.items())
    columns = ("CPU", "µs a request, API", "… in echoes", "µs a task, API", "… in echoes", "µs a task, store")
    return Table("Over HTTP: CPU of the API process and of the store's main thread", columns, rows)


def _cpu_figures(rounds: list[Round], base: list[float]) -> tuple[Figure, ...]:
    requests, items = [each.request_us for each in rounds], [each.api_us for each in rounds]
    store = figure([each.store_us for each in rounds])
    return figure(requests), ratio(requests, base), figure(items), ratio(items, base), store
