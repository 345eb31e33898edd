"""Measures the Python worker: no-op tasks a second through `tideq worker` processes, and the time until pickup.

Each task crosses HTTP at least twice. The queue is filled first, so producers cost nothing here. The floor is redis-py
popping a list, without acknowledgement, state or history; the best Python library on Redis reaches 0.7 of that floor
(docs/workers.md), so three times the best library is 2.1 floors.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

from bench.figures import Findings, Plan, Table, Target, figure, ratio, take_turns
from bench.http.processes import ServerProcess, api
from bench.http.wire import BATCH, Connection, connect, queue_counts, submit
from bench.runtime.processes import single_calls, workers
from bench.server import BenchServer, Servers

FLOOR = "redis-py pops a list, nothing else"
ONE, TWO = "one worker, on the loop", "two workers, on the loop"
THREADS, FEW, SINGLE = "one worker, in threads", "one worker, ten slots", "ten single-call loops"
BEST_LIBRARY_IN_FLOORS = 2_933 / 4_224
"""Dramatiq's rate divided by the floor's, both of one run."""
PICKUP_PER_SECOND = 200


class Round(NamedTuple):
    per_second: float
    worker_us: float
    api_us: float
    store_us: float


async def measure(servers: Servers, plan: Plan) -> Findings:
    with servers.start() as store, api(store.url) as service:
        bench = Bench(store, service, plan.http_tasks)
        samples = await take_turns(plan.rounds, bench.variants())
        waits = await bench.pickups(plan.http_deliveries * 5)
    floor = [each.per_second for each in samples[FLOOR]]
    in_floors = ratio([each.per_second for each in samples[ONE]], floor).median
    cuts = statistics.quantiles(waits, n=100)
    pickup = (figure([cuts[49]]), figure([cuts[98]]))
    title = f"Submission to the handler's first line at {PICKUP_PER_SECOND} tasks a second"
    tables = (_table(samples, floor), Table(title, ("", "p50, ms", "p99, ms"), (("one worker", *pickup),)))
    wanted = 1 / (3 * BEST_LIBRARY_IN_FLOORS)
    return Findings(tables, (Target("floors a worker's task takes, a third of the best", wanted, 1 / in_floors, ""),))


class Bench:
    def __init__(self, store: BenchServer, service: ServerProcess, task_count: int) -> None:
        self._store, self._service, self._count = store, service, task_count

    def variants(self) -> dict[str, Callable[[], Awaitable[Round]]]:
        service = self._service
        return {
            FLOOR: self._floor,
            ONE: partial(self._drained, "on-loop", partial(workers, service, 1), 1),
            TWO: partial(self._drained, "on-loop", partial(workers, service, 2), 1),
            THREADS: partial(self._drained, "in-thread", partial(workers, service, 1), 1),
            FEW: partial(self._drained, "on-loop", partial(workers, service, 1, 10), 4),
            SINGLE: partial(self._drained, "on-loop", partial(single_calls, service), 10),
        }

    async def _floor(self) -> Round:
        count = self._count // 5
        await self._store.client.rpush("floor", *[b"x" * 100] * count)
        began, used = time.perf_counter(), time.process_time()
        while await self._store.client.blpop("floor", 0.1):
            pass
        used = time.process_time() - used
        return Round(count / (time.perf_counter() - began - 0.1), used * 1e6 / count, 0, 0)

    async def _drained(
        self, task_type: str, start: Callable[[], AbstractContextManager[list[ServerProcess]]], fewer: int
    ) -> Round:
        """Measures from 5 % to 95 % of the tasks completed, so that start and end do not count."""
        count = self._count // fewer
        await submit(self._service.port, [{"task_type": task_type, "parameters": {"n": 1}}] * (count // BATCH * BATCH))
        with start() as running:
            await self._until_left(count * 19 // 20)
            before, left, began = await self._spent(running), await self._left(), time.perf_counter()
            await self._until_left(count // 20)
            done, seconds = left - await self._left(), time.perf_counter() - began
            after = await self._spent(running)
            await self._until_left(0)
        used = [(late - early) / done for late, early in zip(after, before, strict=True)]
        return Round(done / seconds, *used)

    async def _spent(self, running: list[ServerProcess]) -> tuple[float, float, float]:
        worker = sum(each.cpu_us() for each in running)
        return worker, self._service.cpu_us(), (await self._store.cpu()).main_us

    async def _left(self) -> int:
        connection = await connect(self._service.port)
        counts = await queue_counts(connection)
        connection.close()
        return sum(counts["by_state"].values())

    async def _until_left(self, count: int) -> None:
        while await self._left() > count:  # noqa: ASYNC110 - other processes have the count
            await asyncio.sleep(0.02)

    async def pickups(self, count: int) -> list[float]:
        """Submits tasks one by one at an even rate to a waiting worker; returns the delays in milliseconds."""
        with tempfile.NamedTemporaryFile("r") as file:
            with workers(self._service, 1, 10, {"BENCH_PICKUPS": file.name}):
                connection = await connect(self._service.port)
                await self._submit_evenly(connection, count)
                await self._until_left(0)
                connection.close()
            return [float(line) for line in file][count // 5 :]

    async def _submit_evenly(self, connection: Connection, count: int) -> None:
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(began + number / PICKUP_PER_SECOND - time.perf_counter(), 0))
            task = {"task_type": "pickup", "parameters": {"submitted_ns": time.time_ns()}}
            await connection.call("/api/v1/tasks", task)


def _table(samples: dict[str, list[Round]], floor: list[float]) -> Table:
    rows = tuple(
        (
            name,
            figure([each.per_second for each in rounds]),
            ratio([each.per_second for each in rounds], floor),
            figure([each.worker_us for each in rounds]),
            figure([each.api_us for each in rounds]),
            figure([each.store_us for each in rounds]),
        )
        for name, rounds in samples.items()
    )
    columns = ("no-op tasks over HTTP", "tasks a second", "… in floors", "µs a task, worker", "… API", "… store")
    return Table("Through the Python worker, one API process", columns, rows)
