"""A worker process: crews, heartbeats and health put together, from start to the last result delivered.

On the first signal it stops claiming, finishes what runs as far as the time allows, and hands the rest back without
cost; a second signal skips the waiting.
"""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import structlog

from tideq.queue_core.background import background_task, cancel_and_wait, run
from tideq.workers.runtime.consumer import Consumer
from tideq.workers.runtime.handlers import Handler, HandlerError, Handlers
from tideq.workers.runtime.health import (
    MAX_LOOP_LAG_SECONDS,
    Check,
    CpuMeter,
    Health,
    HealthServer,
    judged,
    memory_check,
)
from tideq.workers.runtime.heartbeat import Heartbeat, HeartbeatThread
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.registry import has_begun
from tideq.workers.runtime.service_api import ServiceApi, ServiceReply

TICK_SECONDS = 0.5
MAX_SILENT_BEATS = 2
EXIT_SECONDS = 5.0
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104

log = structlog.get_logger("tideq.worker")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    api_key: str | None = None
    concurrency: int = 10
    capabilities: tuple[str, ...] = ()
    name: str = "worker"
    version: str = ""
    modules: tuple[str, ...] = ()
    """What a child process imports to know the handlers."""
    drain_seconds: float = 30.0
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    """None for no health page, 0 for any free port."""


class WorkerProcess:
    def __init__(self, settings: WorkerSettings, handlers: Handlers) -> None:
        if not len(handlers):
            raise HandlerError("there is no handler: decorate a function with @task, or give tq(…) a worker")
        self._settings = settings
        self._handlers = handlers
        self._crews: list[Consumer] = []
        self._ticked_at = time.monotonic()
        self._cpu = CpuMeter()
        self._pulse: HeartbeatThread | None = None
        self.is_paused = False
        self._is_stopping = False
        self._stop_now = asyncio.Event()

    def stop(self) -> None:
        """Drain; called a second time, do not wait."""
        if self._is_stopping:
            self._stop_now.set()
        self._is_stopping = True
        for crew in self._crews:
            crew.drain()

    @property
    def running_count(self) -> int:
        return sum(len(crew.runs) for crew in self._crews)

    @property
    def held_count(self) -> int:
        """Claimed, also where they have not begun."""
        return sum(crew.held_count for crew in self._crews)

    @property
    def is_registered(self) -> bool:
        """The service knows this process."""
        return bool(self._crews) and all(crew.worker_id for crew in self._crews)

    @property
    def unsent_count(self) -> int:
        return sum(crew.unsent_count for crew in self._crews)

    def pause(self) -> None:
        """Claim nothing more until `resume`; what runs goes on."""
        self.is_paused = True
        for crew in self._crews:
            crew.pause()

    def resume(self) -> None:
        self.is_paused = False
        for crew in self._crews:
            crew.resume()

    async def run(self) -> None:
        """Until `stop`, or until the service has asked every crew to drain; cancelled, it hands back what it holds."""
        has_begun.set()
        async with ServiceApi(self._settings.url, self._settings.api_key) as protocol:
            with self._health_page() as health_port:
                self._crews = self._make_crews(protocol, health_port)
                with self._heartbeats():
                    await self._work()

    async def _work(self) -> None:
        lives = [asyncio.create_task(crew.run(self._settings.drain_seconds)) for crew in self._crews]
        for crew in self._crews:
            if self.is_paused:
                crew.pause()
            if self._is_stopping:
                crew.drain()
        hurrying = asyncio.create_task(self._stop_now.wait())
        everyone = asyncio.gather(*lives)
        try:
            async with background_task(self._tick()):
                await asyncio.wait([everyone, hurrying], return_when=asyncio.FIRST_COMPLETED)
                if everyone.done():
                    everyone.result()
        finally:
            await cancel_and_wait(hurrying, everyone, *lives)
            # Nothing to do for those that have left in order.
            await asyncio.gather(*(crew.abandon() for crew in self._crews))
            for crew in self._crews:
                crew.end()

    def _make_crews(self, protocol: ServiceApi, health_port: int | None) -> list[Consumer]:
        apart, shared, settings = self._handlers.apart(), self._handlers.shared(), self._settings
        uses_loop = any(handler.mode == "loop" for handler in (*apart, *shared))
        make_crew = functools.partial(
            Consumer,
            protocol=protocol,
            description=self._description(health_port),
            modules=settings.modules,
            shares_loop=uses_loop and len(apart) + bool(shared) > 1,
        )
        crews = [self._crew_apart(make_crew, handler) for handler in apart]
        return [*crews, make_crew(shared, settings.concurrency)] if shared else crews

    def _crew_apart(self, make_crew: Callable[..., Consumer], handler: Handler) -> Consumer:
        options = handler.options
        rate = Rate(options.rate_per_second) if options.rate_per_second else None
        return make_crew([handler], options.concurrency or self._settings.concurrency, rate=rate)

    def _description(self, health_port: int | None) -> dict[str, Any]:
        settings = self._settings
        # Listening everywhere is no address to be found at.
        is_found = health_port is not None and settings.health_host not in EVERYWHERE
        return {
            "name": settings.name,
            "version": settings.version,
            "capabilities": list(settings.capabilities),
            "host": settings.health_host if is_found else socket.gethostname()[:255],
            "health_port": health_port,
        }

    @contextlib.contextmanager
    def _health_page(self) -> Generator[int | None]:
        if self._settings.health_port is None:
            yield None
            return
        server = HealthServer(self._settings.health_host, self._settings.health_port, self.shown_health)
        server.start()
        try:
            yield server.port
        finally:
            server.end()

    @contextlib.contextmanager
    def _heartbeats(self) -> Generator[None]:
        loop = asyncio.get_running_loop()

        def hear(worker_id: str, answer: ServiceReply) -> None:
            loop.call_soon_threadsafe(
                lambda: [crew.handle_reply(worker_id, answer) for crew in self._crews_of(worker_id)]
            )

        def forget(worker_id: str) -> None:
            loop.call_soon_threadsafe(lambda: [crew.forget(worker_id) for crew in self._crews_of(worker_id)])

        url, key = self._settings.url, self._settings.api_key
        self._pulse = HeartbeatThread(url, key, self._beats, self._beat_seconds, hear, forget)
        self._pulse.start()
        try:
            yield
        finally:
            self._pulse.end()

    def _crews_of(self, worker_id: str) -> list[Consumer]:
        return [crew for crew in self._crews if crew.worker_id == worker_id]

    def _beat_seconds(self) -> float:
        return min((crew.heartbeat_seconds for crew in self._crews), default=30.0)

    def _beats(self) -> list[Heartbeat]:
        """Called from the heartbeat's thread: reads, never writes."""
        told, statuses = {name: check.value for name, check in self.health().checks.items()}, self._statuses()
        return [
            Heartbeat(crew.worker_id, len(crew.runs), statuses[crew.worker_id], told)
            for crew in self._crews
            if crew.worker_id in statuses
        ]

    def _statuses(self) -> dict[str, str]:
        """In its own words, by worker id: unhealthy is what more work would make worse.

        A stuck thread keeps one slot and leaves the others, and who hears of failed heartbeats has got one.
        """
        status = "active" if judged(self._strains()).is_well else "unhealthy"
        return {crew.worker_id: "draining" if crew.is_draining else status for crew in self._crews if crew.worker_id}

    def _strains(self) -> dict[str, Check]:
        lag = max(time.monotonic() - self._ticked_at - TICK_SECONDS, 0.0)
        return {
            "memory_usage_percent": memory_check(),
            "event_loop_lag_seconds": Check(lag < MAX_LOOP_LAG_SECONDS, round(lag, 3), MAX_LOOP_LAG_SECONDS),
        }

    def health(self) -> Health:
        stuck = sum(crew.stuck_count for crew in self._crews)
        silent = self._pulse.failure_count if self._pulse else 0
        return judged(
            {
                **self._strains(),
                "cpu_usage_percent": Check(True, self._cpu.percent()),
                "stuck_threads": Check(stuck == 0, stuck, 0),
                "failed_heartbeats": Check(silent < MAX_SILENT_BEATS, silent, MAX_SILENT_BEATS),
                "tasks_held": Check(True, self.running_count),
                "unsent_reports": Check(True, self.unsent_count),
            }
        )

    def shown_health(self) -> Health:
        """On the page: before the service has taken it, it is alive and not ready."""
        is_registered = any(crew.worker_id for crew in self._crews)
        return judged({**self.health().checks, "registered": Check(is_registered, is_registered, True)})

    async def _tick(self) -> None:
        while True:
            self._ticked_at = time.monotonic()
            if self._pulse:
                self._pulse.send_on_change(self._statuses())
            await asyncio.sleep(TICK_SECONDS)


def run_until_signal(settings: WorkerSettings, handlers: Handlers) -> int:
    """The exit status: 0 if every result was delivered."""

    async def main() -> int:
        worker, loop = WorkerProcess(settings, handlers), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        await worker.run()
        status = 1 if worker.unsent_count else 0
        _end_process_soon(status)
        return status

    return run(main())


def _end_process_soon(status: int) -> None:
    """A handler that hangs in a thread or job of its own making must not keep alive a worker that has left."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()
