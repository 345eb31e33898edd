"""A worker process as applications run it, with a handler that only counts."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from tideq.cli.benchmark.child import PROGRESS_SECONDS, ReportWriter
from tideq.cli.benchmark.messages import BenchProgress, BenchTarget, Order, Ready, Rest, Work, Worked
from tideq.queue_core.background import background_task, cancel_and_wait
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.worker_process import WorkerProcess, WorkerSettings

CONCURRENCY = 500
"""The most tasks one claim may take: handlers take no time, so only held tasks overlap with the claims."""
DRAIN_SECONDS = 5.0
LOOK_SECONDS = 0.005
MAX_REST_SECONDS = 20.0


class Parameters(msgspec.Struct):
    at: float = 0.0
    """The time of submission in milliseconds; 0 where pickup is not measured."""


class NoOp:
    """Counts since the last `begin`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.count, self._moments, self._cpu, self._began = 0, Counter[int](), time.process_time(), time.monotonic()
        self._pickup_ms: list[float] = []

    async def handle(self, parameters: Parameters) -> None:
        now_ms = time.monotonic() * 1000
        self.count += 1
        self._moments[int(now_ms)] += 1
        if parameters.at:
            self._pickup_ms.append(now_ms - parameters.at)

    def result(self) -> Worked:
        spent = time.process_time() - self._cpu
        return Worked(self.count, self._began, spent, dict(self._moments), self._pickup_ms)


async def run_orders(target: BenchTarget, orders: AsyncIterator[Order], reports: ReportWriter) -> None:
    """Stops the worker in order when the orders end."""
    no_op, handlers = NoOp(), Handlers()
    handlers.add(Handler(target.task_type, no_op.handle, takes="payload"))
    worker = WorkerProcess(_settings(target), handlers)
    running = asyncio.create_task(worker.run())
    following = asyncio.create_task(_follow_orders(worker, no_op, orders, reports))
    await asyncio.wait((running, following), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await cancel_and_wait(following)
        running.result()
        return
    worker.stop()
    await running
    following.result()


def _settings(target: BenchTarget) -> WorkerSettings:
    return WorkerSettings(
        url=target.url,
        api_key=target.api_key or None,
        concurrency=CONCURRENCY,
        capabilities=(target.task_type,),
        name="bench",
        drain_seconds=DRAIN_SECONDS,
    )


async def _follow_orders(
    worker: WorkerProcess, no_op: NoOp, orders: AsyncIterator[Order], reports: ReportWriter
) -> None:
    while not worker.is_registered:  # noqa: ASYNC110 - the worker has no event for it
        await asyncio.sleep(LOOK_SECONDS)
    worker.pause()
    # Tasks claimed before the pause must be completed now: the first order would wait for them and not count them.
    await _wait_until_idle(worker)
    reports.write(Ready())
    async for order in orders:
        if isinstance(order, Work):
            no_op.begin()
            worker.resume()
            async with background_task(_report_progress(no_op, reports)):
                if isinstance(await anext(orders, None), Rest):
                    worker.pause()
                    await _wait_until_idle(worker)
            reports.write(no_op.result())


async def _report_progress(no_op: NoOp, reports: ReportWriter) -> None:
    while True:
        reports.write(BenchProgress(no_op.count))
        await asyncio.sleep(PROGRESS_SECONDS)


async def _wait_until_idle(worker: WorkerProcess) -> None:
    """Waits until all held tasks are completed and reported, at most MAX_REST_SECONDS: the service may be gone."""
    deadline = time.monotonic() + MAX_REST_SECONDS
    while (worker.held_count or worker.unsent_count) and time.monotonic() < deadline:  # noqa: ASYNC110 - counts have no events
        await asyncio.sleep(LOOK_SECONDS)
