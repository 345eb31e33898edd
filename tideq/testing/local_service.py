"""Runs a service on fakeredis, in a thread of this process that listens on loopback."""

import asyncio
import contextlib
import threading
import uuid
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

import fakeredis
import msgspec

from tideq.api.app import create_app
from tideq.api.server import address_of, listen, server_for
from tideq.api.service import Service
from tideq.api.settings import ServiceSettings
from tideq.application.inline_worker import MAX_BATCH, InlineWorker
from tideq.client import Client
from tideq.client.models.tasks import Task
from tideq.persistence.recovery.open_store import OpenStore
from tideq.queue_core.engine import assemble_engine
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock
from tideq.workers.runtime.handlers import Handlers
from tideq.workers.runtime.registry import has_started, registered

T = TypeVar("T")


class LocalService:
    """A running service with its `url` and a `client`."""

    def __init__(self, url: str, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.client = Client(url)
        self._service = service
        self._loop = loop
        self._clock = StoreClock(service.client, *(part.keys for part in service.engine.parts))

    def advance(self, seconds: float) -> None:
        """Moves the clock forward: backoffs end, delays fall due, leases expire, workers without heartbeats die."""
        self._wait_for(self._clock.advance(round(seconds * 1000)))
        self._wait_for(self._service.engine.queue.sweep())

    def run_pending(self, handlers: Handlers = registered, *, limit: int = MAX_BATCH) -> list[Task]:
        """Runs the ready tasks one after the other until none is left; returns them with their new state.

        A failed task that waits for its retry runs again only after `advance`.
        """
        with InlineWorker(self.client.transport, handlers, "testing") as worker:
            return [self.client.get(task_id) for task_id in worker.run(limit)]

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextlib.contextmanager
def local_service(settings: QueueSettings | None = None) -> Generator[LocalService]:
    """A service with an empty queue of its own, for the time of the block."""
    has_started.set()
    ready, loop = threading.Event(), asyncio.new_event_loop()
    started: list[LocalService] = []
    stop = asyncio.Event()

    async def main() -> None:
        async with _serving(settings or QueueSettings(), stop) as (url, service):
            started.append(LocalService(url, service, loop))
            ready.set()
            await stop.wait()

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(main())

    thread = threading.Thread(target=run, name="tideq-testing", daemon=True)
    thread.start()
    while not ready.wait(0.01):
        if not thread.is_alive():
            raise RuntimeError("the service did not start; see the traceback above")
    try:
        yield started[0]
    finally:
        started[0].client.close()
        loop.call_soon_threadsafe(stop.set)
        thread.join()


@contextlib.asynccontextmanager
async def _serving(queue: QueueSettings, stop: asyncio.Event) -> AsyncGenerator[tuple[str, Service]]:
    named = msgspec.structs.replace(queue, queue_name=uuid.uuid4().hex[:12])
    retention = msgspec.structs.replace(named.retention, has_history=False)
    settings = ServiceSettings(auth="off", queue=msgspec.structs.replace(named, retention=retention))
    store = fakeredis.FakeServer()
    client: Any = fakeredis.FakeAsyncRedis(server=store)
    engine = assemble_engine(client, settings.queue, sends_flags=False)
    await engine.queue.open()
    service = Service(
        settings, OpenStore(client, engine, None, None, client), lambda: fakeredis.FakeAsyncRedis(server=store)
    )
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        async with contextlib.aclosing(client), service.wakeups, service.live_events:
            server = server_for(create_app(service))
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield address_of(listener), service
            finally:
                service.close()
                await service.wait_estimator.close()
                server.should_exit = True
                await serving
