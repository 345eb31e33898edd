"""Workers inside the application's own process: `start`, `pause`, `resume`, `stats`, `stop`."""

import asyncio
import threading
from typing import Any

import msgspec

from tideq.application.connection import default_client
from tideq.workers.runtime.registry import registered
from tideq.workers.runtime.worker import Worker, WorkerSettings

START_SECONDS = 10.0


class Stats(msgspec.Struct, frozen=True):
    """Of this process."""

    running: int
    unsent_reports: int
    is_paused: bool


class InProcessWorker:
    """A worker on a loop in a thread of its own."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._worker: Worker | None = None
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tideq-worker", daemon=True)

    def start(self) -> "InProcessWorker":
        self._thread.start()
        self._is_running.wait(START_SECONDS)
        return self

    def pause(self) -> None:
        self._tell(Worker.pause)

    def resume(self) -> None:
        self._tell(Worker.resume)

    def stats(self) -> Stats:
        worker = self._worker
        if worker is None:
            return Stats(0, 0, is_paused=False)
        return Stats(worker.running_count, worker.unsent_count, worker.is_paused)

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Finish what runs, hand the rest back, deliver every result."""
        self._tell(Worker.stop)
        self._thread.join(timeout_seconds)

    def _tell(self, verb: Any) -> None:
        if self._worker is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(verb, self._worker)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        self._worker = Worker(self._settings, registered)
        self._is_running.set()
        await self._worker.run()


_started: InProcessWorker | None = None


def start(*, concurrency: int = 10, capabilities: tuple[str, ...] = (), drain_seconds: float = 30.0) -> InProcessWorker:
    """Run every handler this process knows, in the background. A second call is refused until `stop`."""
    global _started
    if _started is not None:
        raise RuntimeError("a worker runs in this process already")
    connection = default_client().transport.connection
    settings = WorkerSettings(
        url=connection.url,
        api_key=connection.headers.get("Authorization", "").removeprefix("Bearer ") or None,
        concurrency=concurrency,
        capabilities=capabilities,
        drain_seconds=drain_seconds,
    )
    _started = InProcessWorker(settings).start()
    return _started


def pause() -> None:
    """Claim nothing more in this process; what runs goes on. The queue's own pause is `client.queue.pause`."""
    _running().pause()


def resume() -> None:
    _running().resume()


def stats() -> Stats:
    """Of this process; the queue's are `client.queue.stats`."""
    return _running().stats()


def stop(timeout_seconds: float | None = None) -> None:
    """Drain and end the worker of this process."""
    global _started
    _running().stop(timeout_seconds)
    _started = None


def _running() -> InProcessWorker:
    if _started is None:
        raise RuntimeError("no worker runs in this process: call tideq.start() first")
    return _started
