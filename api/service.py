"""The service: one object that owns the connections, opened when the application starts and closed when it ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from litestar.di import NamedDependency

from tideq.api.auth import Gate
from tideq.api.settings import ServiceSettings
from tideq.queue_core.engine.access_keys import AccessKeys
from tideq.queue_core.engine.attempts import Held
from tideq.queue_core.engine.engine import Engine, assemble_engine
from tideq.queue_core.engine.keys import Keys
from tideq.queue_core.engine.outbox import OutboxReader
from tideq.queue_core.engine.store import connect, connect_listener
from tideq.queue_core.engine.waiting_room import Waiter
from tideq.queue_core.engine.wakeups import Wakeups
from tideq.queue_core.task import Claim, ClaimedTask, Task
from tideq.queue_core.transitions import TERMINAL

LOOK_AGAIN_SECONDS = 2.0


class NoKeys(RuntimeError):
    """The service would be open to the network: it has no key anyone could show."""


class Service:
    def __init__(self, settings: ServiceSettings, client: Any, open_listener: Callable[[], Any]) -> None:
        queue = settings.queue
        self.settings = settings
        self.client = client
        self.engine: Engine = assemble_engine(client, queue)
        keys = Keys(queue.queue_name, queue.partition)
        self.access_keys = AccessKeys(client, keys)
        self.gate = Gate(self.access_keys, is_open=settings.auth == "off")
        self.wakeups = Wakeups(self.engine.scripts, client, keys, open_listener)
        self.outbox = OutboxReader(keys, open_listener)
        self.is_closing = False

    async def check_keys(self) -> None:
        if self.settings.auth == "keys" and not self.settings.is_loopback and not await self.gate.has_keys():
            raise NoKeys(
                f"refusing to listen on {self.settings.host} without any key: "
                "make one with `tideq keys create NAME --role admin`"
            )

    def close(self) -> None:
        """Waiting polls are answered empty and nothing new is claimed; what is under way may finish."""
        self.is_closing = True
        self.wakeups.close()
        self.outbox.close()

    async def poll(
        self, worker_id: str, wanted: int, wait_seconds: float, poll_id: str, capabilities: list[str] | None
    ) -> Claim:
        """A long poll: claims the moment there is something for this worker."""
        waiter = Waiter(worker_id, "", wanted)

        def claim() -> Awaitable[Claim]:
            return self.engine.queue.claim(worker_id, wanted, poll_id=poll_id, capabilities=capabilities)

        async def hand_back(tasks: tuple[ClaimedTask, ...]) -> None:
            await self.engine.attempts.release(worker_id, [Held(task.task_id, task.lease) for task in tasks])

        return await self.wakeups.poll(waiter, claim, hand_back, 0 if self.is_closing else wait_seconds)

    async def wait(self, task_id: str, seconds: float) -> Task:
        """The task when it is finished, or as it is when the time is up or the service closes."""
        deadline = asyncio.get_running_loop().time() + seconds
        with self.outbox.subscribe(lambda event: event.task_id == task_id) as events:
            while True:
                task = await self.engine.queue.read(task_id)
                left = deadline - asyncio.get_running_loop().time()
                if task.state in TERMINAL or left <= 0 or self.is_closing:
                    return task
                # A lost event must not cost the whole wait: look again now and then.
                await events.next(min(left, LOOK_AGAIN_SECONDS))


@contextlib.asynccontextmanager
async def open_service(settings: ServiceSettings) -> AsyncGenerator[Service]:
    client = connect(settings.redis_url)
    service = Service(settings, client, lambda: connect_listener(settings.redis_url))
    try:
        await service.engine.queue.open()
        await service.check_keys()
        async with service.wakeups, service.outbox:
            yield service
    finally:
        await client.aclose()


InjectedService = NamedDependency[Service]
"""The service as a route's argument."""
