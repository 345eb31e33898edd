"""Background asyncio tasks: started for a while, cancelled and awaited for certain."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

CANCEL_AGAIN_SECONDS = 0.1
GARBAGE_THRESHOLDS = (10_000, 10, 10)

T = TypeVar("T")


async def cancel_and_wait(*jobs: asyncio.Future[Any]) -> None:
    """Cancel the jobs and wait until all have ended; their errors are dropped.

    One cancellation is not enough: before Python 3.12 `asyncio.wait_for`, which the store's driver uses for every
    command, loses a cancellation that arrives together with the result it waits for.
    """
    for job in jobs:
        # A callback, so that no "exception was never retrieved" is logged if this function is itself cancelled.
        job.add_done_callback(_retrieve_exception)
    left = {job for job in jobs if not job.done()}
    while left:
        for job in left:
            job.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)


def _retrieve_exception(job: asyncio.Future[Any]) -> None:
    if not job.cancelled():
        job.exception()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a whole process, on uvloop if it is installed.

    Objects of the start-up are frozen and the garbage collector runs rarely: a batch makes more than the default
    threshold of 700 objects. Measured: 22 % less CPU for a batch of 100 in the service, 10 % less a task in a worker.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's factory, or None if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


@contextlib.asynccontextmanager
async def background_task(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run `work` until the block is left, then cancel it."""
    job = asyncio.create_task(work)
    try:
        yield job
    finally:
        await cancel_and_wait(job)


async def run_all(*works: Coroutine[Any, Any, None]) -> None:
    """Run all concurrently. The first failure cancels the others; unlike `asyncio.gather`, none outlives the call."""
    jobs = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*jobs)
    finally:
        while not all(job.done() for job in jobs):
            # The caller may cancel again while the jobs are being cancelled; the first cancellation already propagates.
            with contextlib.suppress(asyncio.CancelledError):
                await cancel_and_wait(*jobs)
