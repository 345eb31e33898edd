"""Measures one turn of one peer: fresh stores, its client and workers, all figures.

Workers are warmed up before the measurement, and paused (SIGSTOP) while the queue is filled, so that all of them start
with a full queue at the same instant. The processing rate is read from the number of unacknowledged tasks in the store,
between 5 % and 95 % done, or for a limited time.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers import processes
from bench.peers.catalogue import Peer
from bench.peers.environments import Environments
from bench.peers.processes import DriverClient, DriverFailed, Worker
from bench.peers.samples import Amount, Point, Sample, charged, is_over, window
from bench.peers.service import Service, history_has_everything, service
from bench.peers.stores import Postgres, PostgresServer, Valkey, valkey
from bench.server import process_cpu_us

LOOK_SECONDS = 0.03
LOOK_SHARE = 20
"""Reading the queue takes a twentieth of the time at most."""
WARM_SECONDS = 30.0
STALL_SECONDS = 30.0
CAUGHT_UP_SECONDS = 90.0
PER_SECOND = 200


class TurnContext(NamedTuple):
    """The folder, environments and servers shared by all turns."""

    folder: Path
    environments: Environments
    postgres: PostgresServer
    has_aof: bool


class TurnServices(NamedTuple):
    redis: Valkey | None
    database: Postgres | None
    service: Service

    @property
    def urls(self) -> dict[str, str]:
        return {
            "redis_url": self.redis.url if self.redis else "",
            "database_url": self.database.url if self.database else "",
            "service_url": self.service.url,
        }

    @property
    def store(self) -> Valkey | Postgres:
        """The store of the queue."""
        store = self.redis or self.database
        assert store is not None
        return store

    def spent(self) -> dict[str, float]:
        """CPU by process; for PostgreSQL all its processes, including those that write in the background."""
        spent = {"store": self.store.cpu_us(), **self.service.spent()}
        return spent | ({"PostgreSQL": self.database.cpu_us()} if self.redis and self.database else {})


async def take_turn(peer: Peer, kind: str, context: TurnContext, amount: Amount) -> Sample:
    command = context.environments.command(peer)
    async with turn_services(peer, context) as services:
        settings = {"batch": 0, "concurrency": 1, **peer.settings(kind), **services.urls}
        environ, log = context.environments.environ(), context.folder / "client.log"
        async with processes.client(command, settings, environ, log) as (driver, greeting):
            turn = Turn(driver, services, settings, amount)
            turn.sample.version = greeting["version"]
            if peer.processes:
                with _workers(command, settings, context, amount.worker_count) as workers:
                    await turn.work(workers)
            elif amount.is_whole:
                await turn.fill()
            if amount.is_whole:
                await turn.submit_singly(has_async=greeting["has_async"])
    return turn.sample


class Turn:
    def __init__(
        self, driver: DriverClient, services: TurnServices, settings: Mapping[str, Any], amount: Amount
    ) -> None:
        self._driver, self._services, self._settings, self._amount = driver, services, settings, amount
        self._workers: list[tuple[Worker, Path]] = []
        self._look_took = 0.0
        self.sample = Sample()

    async def work(self, workers: list[tuple[Worker, Path]]) -> None:
        self._workers = workers
        await self._warm_up()
        if self._amount.is_whole:
            await self._probe()
        for worker, _ in workers:
            worker.pause()
        count = await self.fill()
        for worker, _ in workers:
            worker.resume()
        await self._drain(count)
        self._workers = []

    async def fill(self) -> int:
        """Submits in bulk for a fixed time; returns the number of tasks, and records rate, CPU and size."""
        used, before = await self._services.store.used_bytes(), self._spent()
        done = await self._driver.order("bulk", seconds=self._amount.enqueue_seconds, batch=self._settings["bulk"])
        count = done["count"]
        self.sample.bulk_cpu_us = charged(before, self._spent(), count, leave_out="workers")
        self.sample.bulk = count / done["seconds"]
        self.sample.bytes_a_task = (await self._services.store.used_bytes() - used) / count
        return count

    async def submit_singly(self, *, has_async: bool) -> None:
        seconds, before = self._amount.enqueue_seconds / 2, self._spent()
        done = await self._driver.order("single", seconds=seconds, at_once=1)
        self.sample.single = done["count"] / done["seconds"]
        self.sample.single_cpu_us = charged(before, self._spent(), done["count"], leave_out="workers")
        if has_async:
            self.sample.single_at_once = await self._submitted_at_once(seconds, self._amount.at_once)
            # The driver's last order, because some libraries run out of connections and fail.
            with contextlib.suppress(DriverFailed):
                self.sample.single_crowd = await self._submitted_at_once(seconds, self._amount.crowd)

    async def _submitted_at_once(self, seconds: float, at_once: int) -> float:
        done = await self._driver.order("single", seconds=seconds, at_once=at_once)
        return done["count"] / done["seconds"]

    async def _warm_up(self) -> None:
        """Submits tasks until every worker has run one; a fast worker may claim all tasks for a while."""
        began = time.perf_counter()
        while not all(path.stat().st_size for _, path in self._workers):
            await self._driver.order("paced", count=20, per_second=PER_SECOND)
            await self._look()
            self._check(began, WARM_SECONDS, "no task reached every worker")
        await self._until_done()

    async def _probe(self) -> None:
        ((_, path),) = self._workers
        already = path.stat().st_size
        await self._driver.order("paced", count=self._amount.probes, per_second=PER_SECOND)
        await self._until_done()
        with path.open() as file:
            file.seek(already)
            cuts = statistics.quantiles([float(line) for line in file], n=100)
        self.sample.p50_ms, self.sample.p99_ms = cuts[49], cuts[98]

    async def _drain(self, count: int) -> None:
        points = [Point(time.perf_counter(), count, self._spent())]
        while not is_over(points, self._amount.process_seconds):
            left = await self._look()
            points.append(Point(time.perf_counter(), left, self._spent()))
            if left >= count:
                self._check(points[0].at, STALL_SECONDS, f"none of {count} tasks was done")
        first, last = window(points)
        done = first.left - last.left
        self.sample.work_cpu_us = charged(first.spent, last.spent, done, leave_out="client")
        self.sample.processed = done / (last.at - first.at)
        if self._services.service.replicator and self._amount.is_whole:
            await self._catch_up()

    async def _catch_up(self) -> None:
        await self._until_done()
        began, urls = time.perf_counter(), self._services.urls
        try:
            async with asyncio.timeout(CAUGHT_UP_SECONDS):
                await history_has_everything(urls["redis_url"], urls["database_url"])
        except TimeoutError as error:
            raise DriverFailed(f"history does not catch up within {CAUGHT_UP_SECONDS:g} s") from error
        self.sample.caught_up_seconds = time.perf_counter() - began

    async def _until_done(self) -> None:
        began = time.perf_counter()
        while await self._look():
            self._check(began, STALL_SECONDS, "tasks are not done")

    async def _look(self) -> int:
        """Returns the tasks left. Waits first, because counting is expensive for some stores and would be measured."""
        await asyncio.sleep(max(LOOK_SECONDS, self._look_took * LOOK_SHARE))
        for worker, _ in self._workers:
            worker.check()
        began = time.perf_counter()
        left = (await self._driver.order("left"))["left"]
        self._look_took = time.perf_counter() - began
        return left

    def _check(self, began: float, within_seconds: float, problem: str) -> None:
        if time.perf_counter() - began > within_seconds:
            raise DriverFailed(f"{problem} within {within_seconds:g} s")

    def _spent(self) -> dict[str, float]:
        return {
            "client": process_cpu_us(self._driver.pid),
            "workers": sum(worker.cpu_us() for worker, _ in self._workers),
            **self._services.spent(),
        }


@contextlib.asynccontextmanager
async def turn_services(peer: Peer, context: TurnContext) -> AsyncGenerator[TurnServices]:
    async with contextlib.AsyncExitStack() as running:
        redis = database = None
        if peer.store != "postgres":
            redis = running.enter_context(valkey(context.folder / "valkey", has_aof=context.has_aof))
        if peer.store in ("postgres", "tideq+history"):
            database = await running.enter_async_context(context.postgres.database())
        ours = Service()
        if redis and peer.store.startswith("tideq"):
            ours = running.enter_context(service(redis.url, database.url if database else ""))
        yield TurnServices(redis, database, ours)


@contextlib.contextmanager
def _workers(
    command: list[str], settings: Mapping[str, Any], context: TurnContext, count: int
) -> Generator[list[tuple[Worker, Path]]]:
    """Worker processes, each with the file to which it writes the delays of probes."""
    started: list[tuple[Worker, Path]] = []
    with contextlib.ExitStack() as running:
        for number in range(count):
            delays, log = context.folder / f"delays{number}", context.folder / f"worker{number}.log"
            delays.write_text("")
            environ = context.environments.environ() | {"PEERS_DELAYS": str(delays)}
            started.append((running.enter_context(processes.worker(command, settings, environ, log)), delays))
        yield started
