"""Measures how much 1 and 50 task types that always fail slow down a healthy type.

As many broken tasks as healthy ones wait, all of them before. Each round has a store and a service of its own, and is
timed from the first claim on: what workers learn of the broken types takes its time. Beside fifty types that is several
hundred tasks, so there are more healthy ones.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.figures import Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.http.processes import ServerProcess, api
from bench.http.wire import connect, queue_counts, submit
from bench.runtime.processes import workers
from bench.server import Servers

HEALTHY = "healthy"
BROKEN = tuple(f"broken-{number}" for number in range(50))
SECONDS = 0.01
"""The duration of each task."""
SLOTS = 10
ALONE = "alone"
MIN_SHARE = 0.9
MANY = 50
PER_TYPE = 200
"""Healthy tasks for each broken type, at the least."""
TOGETHER = (("bench.circuits.healthy", "bench.circuits.broken"),)
APART = (("bench.circuits.healthy",), ("bench.circuits.broken",))
WorkerHandlers = Sequence[Sequence[str]]
"""The handlers of each worker process."""


async def measure(servers: Servers, plan: Plan) -> Findings:
    count = max(plan.http_tasks // 10, 1_500)
    many = max(count, PER_TYPE * MANY)
    variants: dict[str, Callable[[], Awaitable[float]]] = {
        ALONE: partial(_healthy_per_second, servers, count, 0, APART[:1]),
        "beside 1 broken type, in one worker": partial(_healthy_per_second, servers, count, 1, TOGETHER),
        "beside 50 broken types, in one worker": partial(_healthy_per_second, servers, many, MANY, TOGETHER),
        "beside 1 broken type, in two workers": partial(_healthy_per_second, servers, count, 1, APART),
        "beside 50 broken types, in two workers": partial(_healthy_per_second, servers, many, MANY, APART),
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
        await submit(service.port, tasks := list(_tasks(count, broken_type_count)))
        filled = len(tasks)
        for handlers in handler_sets:
            running.enter_context(workers(service, 1, SLOTS, handlers=handlers))
        await _until(service, lambda queue: sum(queue["by_type"].values()) < filled)
        began = time.perf_counter()
        await _until(service, lambda queue: HEALTHY not in queue["by_type"])
        return count / (time.perf_counter() - began)


def _tasks(count: int, broken_type_count: int) -> Iterator[dict[str, object]]:
    for number in range(count if broken_type_count else 0):
        yield {"task_type": BROKEN[number % broken_type_count], "max_retries": 0}
    for _ in range(count):
        yield {"task_type": HEALTHY}


async def _until(service: ServerProcess, is_so: Callable[[dict[str, Any]], bool]) -> None:
    """Polls the queue's statistics: other processes change them."""
    connection = await connect(service.port)
    while not is_so(await queue_counts(connection)):  # noqa: ASYNC110 - other processes change them
        await asyncio.sleep(0.02)
    connection.close()
