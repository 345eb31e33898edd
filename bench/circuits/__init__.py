"""Measures how much 1 and 50 task types that always fail slow down a healthy type.

As many broken tasks as healthy ones wait, all of them ahead of the healthy ones. Each round has a store and a service
of its own, and is timed from 5 % of the healthy tasks on, before the worker's circuits have opened.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import msgspec

from bench.figures import Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.http.processes import ServerProcess, api
from bench.http.wire import connect
from bench.runtime.processes import workers
from bench.server import Servers

HEALTHY = "healthy"
BROKEN = tuple(f"broken-{number}" for number in range(50))
SECONDS = 0.01
"""The duration of each task."""
SLOTS = 10
BATCH = 500
ALONE = "alone"
MIN_SHARE = 0.9
TOGETHER = (("bench.circuits.healthy", "bench.circuits.broken"),)
APART = (("bench.circuits.healthy",), ("bench.circuits.broken",))
WorkerHandlers = Sequence[Sequence[str]]
"""The handlers of each worker process."""


async def measure(servers: Servers, plan: Plan) -> Findings:
    count = max(plan.http_tasks // 10, 1_500)
    variants: dict[str, Callable[[], Awaitable[float]]] = {
        ALONE: partial(_healthy_per_second, servers, count, 0, APART[:1]),
        "beside 1 broken type, in one worker": partial(_healthy_per_second, servers, count, 1, TOGETHER),
        "beside 50 broken types, in one worker": partial(_healthy_per_second, servers, count, 50, TOGETHER),
        "beside 1 broken type, in two workers": partial(_healthy_per_second, servers, count, 1, APART),
        "beside 50 broken types, in two workers": partial(_healthy_per_second, servers, count, 50, APART),
    }
    samples = await take_turns(min(plan.rounds, 3), variants)
    shares = {name: ratio(rates, samples[ALONE]) for name, rates in samples.items()}
    rows = tuple((name, figure(rates), shares[name]) for name, rates in samples.items())
    table = Table("A healthy type beside broken ones", ("healthy tasks", "a second", "of alone"), rows)
    least = min(share.median for share in shares.values())
    return Findings((table,), (Target("throughput alone by that beside broken types", 1 / MIN_SHARE, 1 / least, ""),))


async def _healthy_per_second(
    servers: Servers, count: int, broken_type_count: int, handler_sets: WorkerHandlers
) -> float:
    with servers.start() as store, api(store.url) as service, ExitStack() as running:
        await _fill(service, list(_tasks(count, broken_type_count)))
        for handlers in handler_sets:
            running.enter_context(workers(service, 1, SLOTS, handlers=handlers))
        await _until_waiting(service, count * 19 // 20)
        waiting, began = await _waiting(service), time.perf_counter()
        await _until_waiting(service, 0)
        return waiting / (time.perf_counter() - began)


def _tasks(count: int, broken_type_count: int) -> Iterator[dict[str, object]]:
    for number in range(count if broken_type_count else 0):
        yield {"task_type": BROKEN[number % broken_type_count], "max_retries": 0}
    for _ in range(count):
        yield {"task_type": HEALTHY}


async def _fill(service: ServerProcess, tasks: Sequence[dict[str, object]]) -> None:
    connection = await connect(service.port)
    for start in range(0, len(tasks), BATCH):
        await connection.call("/api/v1/tasks/batch", {"tasks": tasks[start : start + BATCH]})
    connection.close()


async def _waiting(service: ServerProcess) -> int:
    connection = await connect(service.port)
    stats = msgspec.json.decode(await connection.request(b"GET /api/v1/queue/stats HTTP/1.1\r\nhost: x\r\n\r\n"))
    connection.close()
    return stats["queue"]["by_type"].get(HEALTHY, 0)


async def _until_waiting(service: ServerProcess, count: int) -> None:
    while await _waiting(service) > count:  # noqa: ASYNC110 - other processes have the count
        await asyncio.sleep(0.02)
