"""A worker process: consumers, heartbeats and health page, from start until the last result is delivered.

On the first signal it stops claiming, finishes running tasks within the drain time and releases the rest at no cost;
a second signal skips the waiting.
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

from tideq.client.heartbeat_thread import Heartbeat, HeartbeatThread
from tideq.queue_core.background import background_task, cancel_and_wait, run
from tideq.workers.runtime.consumer import Consumer
from tideq.workers.runtime.handlers import Handler, HandlerError, Handlers
from tideq.workers.runtime.health import (
    MAX_LOOP_LAG_SECONDS,
    Check,
    CpuMeter,
    Health,
    HealthServer,
    memory_check,
    overall_health,
)
from tideq.workers.runtime.heartbeat import heartbeat_thread
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.registry import has_started
from tideq.workers.runtime.service_api import ServiceApi, ServiceReply

TICK_SECONDS = 0.5
MAX_FAILED_BEATS = 2
EXIT_SECONDS = 5.0
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104

log = structlog.get_logger("tideq.worker")


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    api_key: str | None = None
    concurrency: int = 10
    capabilities: tuple[str, ...] = ()
    name: str = "worker"
    version: str = ""
    modules: tuple[str, ...] = ()
    """Modules that a child process imports to register the handlers."""
    drain_seconds: float = 30.0
    health_host: str = "127.0.0.1"
    health_port: int | None = None
    """None for no health page, 0 for any free port."""


class WorkerProcess:
    def __init__(self, settings: WorkerSettings, handlers: Handlers) -> None:
        if not len(handlers):
            raise HandlerError("no handler is registered: decorate one with @task, or call tq(…).set_worker(…)")
        self._settings = settings
        self._handlers = handlers
        self._consumers: list[Consumer] = []
        self._ticked_at = time.monotonic()
        self._cpu = CpuMeter()
        self._heartbeat_thread: HeartbeatThread | None = None
        self.is_paused = False
        self._is_stopping = False
        self._stop_now = asyncio.Event()

    def stop(self) -> None:
        """Drains; a second call stops without waiting."""
        if self._is_stopping:
            self._stop_now.set()
        self._is_stopping = True
        for consumer in self._consumers:
            consumer.drain()

    @property
    def running_count(self) -> int:
        return sum(len(consumer.attempts) for consumer in self._consumers)

    @property
    def held_count(self) -> int:
        """Claimed tasks, running or not."""
        return sum(consumer.held_count for consumer in self._consumers)

    @property
    def is_registered(self) -> bool:
        """Whether every consumer is registered."""
        return bool(self._consumers) and all(consumer.worker_id for consumer in self._consumers)

    @property
    def unsent_count(self) -> int:
        return sum(consumer.unsent_count for consumer in self._consumers)

    def pause(self) -> None:
        """Stops claiming until `resume`; running tasks go on."""
        self.is_paused = True
        for consumer in self._consumers:
            consumer.pause()

    def resume(self) -> None:
        self.is_paused = False
        for consumer in self._consumers:
            consumer.resume()

    async def run(self) -> None:
        """Runs until `stop`, or until the service has drained every consumer; when cancelled, releases its tasks."""
        has_started.set()
        async with ServiceApi(self._settings.url, self._settings.api_key) as api:
            with self._health_page() as health_port:
                self._consumers = self._make_consumers(api, health_port)
                with self._heartbeats():
                    await self._work()

    async def _work(self) -> None:
        runs = [asyncio.create_task(consumer.run(self._settings.drain_seconds)) for consumer in self._consumers]
        for consumer in self._consumers:
            if self.is_paused:
                consumer.pause()
            if self._is_stopping:
                consumer.drain()
        stop_now = asyncio.create_task(self._stop_now.wait())
        all_runs = asyncio.gather(*runs)
        try:
            async with background_task(self._tick()):
                await asyncio.wait([all_runs, stop_now], return_when=asyncio.FIRST_COMPLETED)
                if all_runs.done():
                    all_runs.result()
        finally:
            await cancel_and_wait(stop_now, all_runs, *runs)
            # Returns at once for a consumer that has deregistered.
            await asyncio.gather(*(consumer.abandon() for consumer in self._consumers))
            for consumer in self._consumers:
                consumer.end()

    def _make_consumers(self, api: ServiceApi, health_port: int | None) -> list[Consumer]:
        separate, shared, settings = self._handlers.with_own_slots(), self._handlers.with_shared_slots(), self._settings
        uses_loop = any(handler.mode == "loop" for handler in (*separate, *shared))
        make_consumer = functools.partial(
            Consumer,
            api=api,
            description=self._description(health_port),
            modules=settings.modules,
            shares_loop=uses_loop and len(separate) + bool(shared) > 1,
        )
        consumers = [self._consumer_with_own_slots(make_consumer, handler) for handler in separate]
        return [*consumers, make_consumer(shared, settings.concurrency)] if shared else consumers

    def _consumer_with_own_slots(self, make_consumer: Callable[..., Consumer], handler: Handler) -> Consumer:
        options = handler.options
        rate = Rate(options.rate_per_second) if options.rate_per_second else None
        return make_consumer([handler], options.concurrency or self._settings.concurrency, rate=rate)

    def _description(self, health_port: int | None) -> dict[str, Any]:
        settings = self._settings
        # A wildcard address cannot be probed.
        is_reachable = health_port is not None and settings.health_host not in WILDCARDS
        return {
            "name": settings.name,
            "version": settings.version,
            "capabilities": list(settings.capabilities),
            "host": settings.health_host if is_reachable else socket.gethostname()[:255],
            "health_port": health_port,
        }

    @contextlib.contextmanager
    def _health_page(self) -> Generator[int | None]:
        if self._settings.health_port is None:
            yield None
            return
        server = HealthServer(self._settings.health_host, self._settings.health_port, self.page_health)
        server.start()
        try:
            yield server.port
        finally:
            server.end()

    @contextlib.contextmanager
    def _heartbeats(self) -> Generator[None]:
        loop = asyncio.get_running_loop()

        def on_reply(worker_id: str, reply: ServiceReply) -> None:
            loop.call_soon_threadsafe(
                lambda: [consumer.handle_reply(worker_id, reply) for consumer in self._consumers_of(worker_id)]
            )

        def on_unknown(worker_id: str) -> None:
            loop.call_soon_threadsafe(
                lambda: [consumer.on_unknown_worker(worker_id) for consumer in self._consumers_of(worker_id)]
            )

        url, key = self._settings.url, self._settings.api_key
        self._heartbeat_thread = heartbeat_thread(
            url, key, self._heartbeats_now, self._beat_seconds, on_reply, on_unknown
        )
        self._heartbeat_thread.start()
        try:
            yield
        finally:
            self._heartbeat_thread.end()

    def _consumers_of(self, worker_id: str) -> list[Consumer]:
        return [consumer for consumer in self._consumers if consumer.worker_id == worker_id]

    def _beat_seconds(self) -> float:
        return min((consumer.heartbeat_seconds for consumer in self._consumers), default=30.0)

    def _heartbeats_now(self) -> list[Heartbeat]:
        """Called from the heartbeat thread: must only read."""
        values, statuses = {name: check.value for name, check in self.health().checks.items()}, self._statuses()
        return [
            Heartbeat(consumer.worker_id, len(consumer.attempts), statuses[consumer.worker_id], values)
            for consumer in self._consumers
            if consumer.worker_id in statuses
        ]

    def _statuses(self) -> dict[str, str]:
        """Statuses by worker id. Unhealthy where more work would make it worse: memory or loop lag.

        Not for stuck threads, which block one slot only, nor for failed heartbeats, which cannot be reported anyway.
        """
        status = "active" if overall_health(self._load_checks()).is_healthy else "unhealthy"
        return {
            consumer.worker_id: "draining" if consumer.is_draining else status
            for consumer in self._consumers
            if consumer.worker_id
        }

    def _load_checks(self) -> dict[str, Check]:
        lag = max(time.monotonic() - self._ticked_at - TICK_SECONDS, 0.0)
        return {
            "memory_usage_percent": memory_check(),
            "event_loop_lag_seconds": Check(lag < MAX_LOOP_LAG_SECONDS, round(lag, 3), MAX_LOOP_LAG_SECONDS),
        }

    def health(self) -> Health:
        stuck = sum(consumer.stuck_count for consumer in self._consumers)
        failed_beats = self._heartbeat_thread.failure_count if self._heartbeat_thread else 0
        return overall_health(
            {
                **self._load_checks(),
                "cpu_usage_percent": Check(True, self._cpu.percent()),
                "stuck_threads": Check(stuck == 0, stuck, 0),
                "failed_heartbeats": Check(failed_beats < MAX_FAILED_BEATS, failed_beats, MAX_FAILED_BEATS),
                "tasks_held": Check(True, self.running_count),
                "unsent_reports": Check(True, self.unsent_count),
            }
        )

    def page_health(self) -> Health:
        """Health for the page: before its registration a worker is alive and not ready."""
        is_registered = any(consumer.worker_id for consumer in self._consumers)
        return overall_health({**self.health().checks, "registered": Check(is_registered, is_registered, True)})

    async def _tick(self) -> None:
        while True:
            self._ticked_at = time.monotonic()
            if self._heartbeat_thread:
                self._heartbeat_thread.send_on_change(self._statuses())
            await asyncio.sleep(TICK_SECONDS)


def run_until_signal(settings: WorkerSettings, handlers: Handlers) -> int:
    """Returns the exit status: 0 if every result was delivered."""

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
    """Kills the process after EXIT_SECONDS: a handler's own hanging thread must not keep it alive."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()
