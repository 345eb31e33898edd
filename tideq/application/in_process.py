"""A worker inside the application's own process, beside what the application does."""

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from tideq.application.worker import Worker
from tideq.client.options import strict, strict_call


class Stats(msgspec.Struct, frozen=True):
    """Of this process."""

    running: int
    unsent_reports: int
    is_paused: bool


class Stopped:
    """What `stop` returns: it may be awaited, and outside of a loop the worker has ended by then."""

    def __init__(self, thread: threading.Thread | None = None, timeout_seconds: float | None = None) -> None:
        self._thread = thread
        self._timeout_seconds = timeout_seconds

    def __await__(self) -> Generator[Any, Any, None]:
        if self._thread is not None and self._thread.is_alive():
            yield from asyncio.to_thread(self._thread.join, self._timeout_seconds).__await__()


@strict
class InProcessWorker:
    """A worker on a loop in a thread of its own. What it says and does is about this process, never about the queue."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="tideq-worker", daemon=True)

    def start(self) -> "InProcessWorker":
        self._thread.start()
        return self

    def pause(self) -> None:
        """Claim nothing more in this process; what runs goes on. The queue's own pause is `tq.pause()`."""
        self._tell(self._worker.pause)

    def resume(self) -> None:
        self._tell(self._worker.resume)

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stats(self) -> Stats:
        """Of this process; the queue's are `tq.stats()`."""
        return Stats(self._worker.running_count, self._worker.unsent_count, self._worker.is_paused)

    def stop(self, timeout_seconds: float | None = None) -> Stopped:
        """Finish what runs, hand the rest back, deliver every result.

        Returns when that is done. A running loop is not blocked by it: there `await handle.stop()` waits, and where
        nobody does the process waits at its end.
        """
        self._tell(self._worker.stop)
        if _is_in_a_loop():
            atexit.register(self._thread.join, timeout_seconds)
        else:
            self._thread.join(timeout_seconds)
        return Stopped(self._thread, timeout_seconds)

    def _tell(self, verb: Callable[[], None]) -> None:
        # A loop that is closed has nobody left to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(verb)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._worker.run())


_started: InProcessWorker | None = None


@strict_call
def start(*, concurrency: int = 10, capabilities: tuple[str, ...] = (), drain_seconds: float = 30.0) -> InProcessWorker:
    """Run every handler this process knows, in the background. A second call is refused until `stop`."""
    global _started
    if is_running():
        raise RuntimeError("a worker runs in this process already: set every worker, then call start() once")
    worker = Worker(concurrency=concurrency, capabilities=capabilities, drain_seconds=drain_seconds)
    _started = InProcessWorker(worker).start()
    return _started


@strict_call
def stop(timeout_seconds: float | None = None) -> Stopped:
    """Drain and end this process's worker, if there is one. In a running loop `await tideq.stop()` waits for it."""
    global _started
    started, _started = _started, None
    return Stopped() if started is None else started.stop(timeout_seconds)


def is_running() -> bool:
    return _started is not None and _started.is_running()


def _is_in_a_loop() -> bool:
    """Whether this thread runs a loop just now, which nothing may block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
