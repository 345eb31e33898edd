"""A process that works: the worker people run, with a handler that does nothing but count."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec

from tideq.cli.benchmark.child import PROGRESS_SECONDS, ReportWriter
from tideq.cli.benchmark.messages import Order, Progress, Ready, Rest, Target, Work, Worked
from tideq.queue_core.background import background_task, cancel_and_wait
from tideq.workers.runtime.handlers import Handler, Handlers
from tideq.workers.runtime.worker import WorkerProcess, WorkerSettings

CONCURRENCY = 500
"""As many as one claim may take: for handlers that take no time, what is held is all there is to overlap."""
DRAIN_SECONDS = 5.0
LOOK_SECONDS = 0.005
MAX_REST_SECONDS = 20.0


class Parameters(msgspec.Struct):
    at: float = 0.0
    """When it was submitted, in milliseconds, or 0 where nobody asks."""


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

    def told(self) -> Worked:
        spent = time.process_time() - self._cpu
        return Worked(self.count, self._began, spent, dict(self._moments), self._pickup_ms)


async def run_orders(target: Target, orders: AsyncIterator[Order], teller: ReportWriter) -> None:
    """The worker leaves the service in order when the orders end."""
    no_op, handlers = NoOp(), Handlers()
    handlers.add(Handler(target.task_type, no_op.handle, takes="payload"))
    worker = WorkerProcess(_settings(target), handlers)
    life = asyncio.create_task(worker.run())
    hearing = asyncio.create_task(_follow(worker, no_op, orders, teller))
    await asyncio.wait((life, hearing), return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        await cancel_and_wait(hearing)
        life.result()
        return
    worker.stop()
    await life
    hearing.result()


def _settings(target: Target) -> WorkerSettings:
    return WorkerSettings(
        url=target.url,
        api_key=target.api_key or None,
        concurrency=CONCURRENCY,
        capabilities=(target.task_type,),
        name="bench",
        drain_seconds=DRAIN_SECONDS,
    )


async def _follow(worker: WorkerProcess, no_op: NoOp, orders: AsyncIterator[Order], teller: ReportWriter) -> None:
    while not worker.is_registered:  # noqa: ASYNC110 - it tells nobody when it is
        await asyncio.sleep(LOOK_SECONDS)
    worker.pause()
    # It may have claimed already: done uncounted now, that would be waited for as part of the first order.
    await _at_rest(worker)
    teller.write(Ready())
    async for order in orders:
        if isinstance(order, Work):
            no_op.begin()
            worker.resume()
            async with background_task(_tell_progress(no_op, teller)):
                if isinstance(await anext(orders, None), Rest):
                    worker.pause()
                    await _at_rest(worker)
            teller.write(no_op.told())


async def _tell_progress(no_op: NoOp, teller: ReportWriter) -> None:
    while True:
        teller.write(Progress(no_op.count))
        await asyncio.sleep(PROGRESS_SECONDS)


async def _at_rest(worker: WorkerProcess) -> None:
    """What it holds is done and told. A service that has gone away is not waited for."""
    deadline = time.monotonic() + MAX_REST_SECONDS
    while (worker.held_count or worker.unsent_count) and time.monotonic() < deadline:  # noqa: ASYNC110 - counts have no events
        await asyncio.sleep(LOOK_SECONDS)
