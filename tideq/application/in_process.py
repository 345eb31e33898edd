"""A worker inside the application's own process, beside what the application does."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

import msgspec

from tideq.application.worker import Worker
from tideq.client.options import strict, strict_call


class Stats(msgspec.Struct, frozen=True):
    """Of this process."""

    running: int
    unsent_reports: int
    is_paused: bool


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

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Finish what runs, hand the rest back, deliver every result."""
        self._tell(self._worker.stop)
        self._thread.join(timeout_seconds)

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
def stop(timeout_seconds: float | None = None) -> None:
    """Drain and end the worker of this process, if there is one."""
    global _started
    if _started is not None:
        _started.stop(timeout_seconds)
        _started = None


def is_running() -> bool:
    return _started is not None and _started.is_running()
