"""The service: one object that owns the connections, opened when the application starts and closed when it ends."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

from litestar import Request
from litestar.di import NamedDependency

from tideq.api.auth import Gate
from tideq.api.durability import DurabilityDesk
from tideq.api.meters import Meters
from tideq.api.pace import Pace
from tideq.api.settings import ServiceSettings
from tideq.api.siblings import Siblings
from tideq.api.tracing import Orders, cancelling, tell_received
from tideq.persistence.archive import Archive
from tideq.persistence.reading.standing import watch_of
from tideq.persistence.recovery.kept_store import KeptStore, open_kept_store, unconnected
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.engine.access_keys import AccessKeys
from tideq.queue_core.engine.attempts import Held
from tideq.queue_core.engine.audit import Audit
from tideq.queue_core.engine.duty_board import DutyBoard
from tideq.queue_core.engine.engine import Engine
from tideq.queue_core.engine.outbox import Outbox
from tideq.queue_core.engine.partitions.assurance import assurance_of
from tideq.queue_core.engine.partitions.outbox_reader import outbox_reader
from tideq.queue_core.engine.partitions.tide import tide_of
from tideq.queue_core.engine.store import connect_listener
from tideq.queue_core.engine.waiting_room import Waiter
from tideq.queue_core.engine.wake_source import WakeSource
from tideq.queue_core.engine.wakeups import Wakeups
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.readings import Readings
from tideq.queue_core.task import Claim, Task
from tideq.queue_core.tracing import Tracing
from tideq.queue_core.transitions import TERMINAL

LOOK_AGAIN_SECONDS = 2.0


class NoKeys(RuntimeError):
    """The service would be open to the network: it has no key anyone could show."""


class Service:
    def __init__(
        self,
        settings: ServiceSettings,
        store: KeptStore,
        open_listener: Callable[[], Any],
        tracing: Tracing | None = None,
        duties: Duties | None = None,
    ) -> None:
        queue, client = settings.queue, store.client
        self.duties = duties or Duties()
        self.settings = settings
        self.tracing = tracing
        self.store = store
        self.client = client
        self.engine: Engine = store.engine
        parts, keys = self.engine.parts, self.engine.keys
        self.access_keys = AccessKeys(client, keys)
        self.audit = Audit(client, keys)
        self.tide = tide_of([part.scripts for part in parts])
        self.gate = Gate(
            self.access_keys,
            is_open=settings.auth == "off",
            allowed_hosts=settings.allowed_hosts,
            duties=self.duties,
        )
        sources = [WakeSource(part.scripts, client, part.keys) for part in parts]
        within_limits = self.engine.ledger and self.engine.ledger.within
        self.wakeups = Wakeups(sources, open_listener, within_limits, self.duties)
        self.outboxes = [Outbox(client, part.keys, number) for number, part in enumerate(parts)]
        self.outbox_reader = outbox_reader(self.outboxes, self.duties)
        self.history = (
            Archive(store.database, store.engine, client, queue, settings.history) if store.database else None
        )
        freshness = self.history.freshness if self.history else None
        assurance = assurance_of(client, [part.keys for part in parts], queue.partitions)
        self.durability = DurabilityDesk(assurance, freshness, settings.durability_timeout_ms)
        self.watch = watch_of(store.database, client, self.engine) if store.database else None
        self.pace = Pace(self.engine.insight)
        self.meters = Meters(self.duties.counters)
        self.meters.counters.watch("tideq_spans_dropped_total", lambda: tracing.lost_count if tracing else 0)
        self.board = DutyBoard(client, keys)
        self.siblings = Siblings(None, self.readings)
        self.is_closing = False

    @property
    def outbox(self) -> Outbox:
        """Of the first partition."""
        return self.outboxes[0]

    async def check_keys(self) -> None:
        """Raises where nobody could show a key, or where it cannot be known yet."""
        if self.settings.auth == "keys" and not self.settings.is_loopback and not await self.gate.has_keys():
            raise NoKeys(
                f"refusing to listen on {self.settings.host} without any key: "
                "make one with `tideq keys create NAME --role admin`"
            )

    async def check_keys_late(self) -> None:
        """As soon as the store can be asked: it was away when the service started. Raises `NoKeys`."""
        checked: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def check(duty: Duty) -> None:
            try:
                await self.check_keys()
            except NoKeys as error:
                checked.set_exception(error)
            else:
                checked.set_result(None)
            duty.succeeded()
            await asyncio.Event().wait()

        checking = self.duties.start("key check", check)
        try:
            await checked
        finally:
            await self.duties.stop(checking)

    def readings(self) -> Readings:
        """What this process counts."""
        skipped_count = sum(outbox.skipped_count for outbox in self.outboxes)
        return self.meters.readings(self.wakeups.sleeping_count, skipped_count)

    @contextlib.asynccontextmanager
    async def with_siblings(self, folder: Path | None) -> AsyncGenerator[None]:
        """One of several processes behind a port, which share this folder."""
        async with Siblings(folder, self.readings) as self.siblings:
            yield

    def close(self) -> None:
        """Waiting polls are answered empty and nothing new is claimed; what is under way may finish."""
        self.is_closing = True
        self.wakeups.close()
        self.outbox_reader.close()

    def cancelling(self, request: Request[Any, Any, Any], task_id: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Around a cancellation, so that traces tell who asked for it."""
        return cancelling(self.tracing, request, task_id, self.settings.queue.queue_name, self.engine.queue.read)

    def orders(self, request: Request[Any, Any, Any], verb: str, task_id: str | None = None) -> Orders | None:
        """For a retry or replay, of one task or of many, so that traces tell who asked for it."""
        if self.tracing is None:
            return None
        return Orders(self.tracing, request, verb, self.settings.queue.queue_name, task_id)

    async def poll(
        self,
        worker_id: str,
        wanted: int,
        wait_seconds: float,
        poll_id: str,
        capabilities: list[str] | None,
        *,
        starts: bool,
    ) -> Claim:
        """A long poll: claims the moment there is something for this worker."""
        waiter = Waiter(worker_id, "", wanted)

        async def claim() -> Claim:
            began = time.perf_counter()
            got = await self.engine.queue.claim(
                worker_id, wanted, poll_id=poll_id, capabilities=capabilities, starts=starts
            )
            self.meters.note_claim(len(got.tasks), time.perf_counter() - began)
            if self.tracing is not None and got.tasks and not got.is_repeat:
                took_ns = round((time.perf_counter() - began) * 1e9)
                queue_name = self.settings.queue.queue_name
                tell_received(self.tracing, queue_name, worker_id, got, time.time_ns() - took_ns)
            return got

        def hand_back(got: Claim) -> Awaitable[None]:
            return self.take_back(worker_id, poll_id, got)

        return await self.wakeups.poll(waiter, claim, hand_back, 0 if self.is_closing else wait_seconds)

    async def take_back(self, worker_id: str, poll_id: str, claim: Claim) -> None:
        """What an answer nobody heard handed out, unless another answer to the same poll did so too and was heard."""
        self.meters.undelivered_count += 1
        if claim.is_repeat:
            return
        if poll_id:
            starts = any(task.is_started for task in claim.tasks)
            await self.engine.queue.withdraw(worker_id, poll_id, claim.answer, starts=starts)
        else:
            await self.engine.attempts.release(worker_id, [Held(task.task_id, task.lease) for task in claim.tasks])

    async def wait(self, task_id: str, seconds: float) -> Task:
        """The task when it is finished, or as it is when the time is up or the service closes."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            with self.outbox_reader.subscribe(lambda event: event.task_id == task_id) as events:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.outbox_reader.reading(), LOOK_AGAIN_SECONDS)
                task = await self.engine.queue.read(task_id)
                left = deadline - asyncio.get_running_loop().time()
                if task.state in TERMINAL or left <= 0 or self.is_closing:
                    return task
                # A lost event must not cost the whole wait: look again now and then.
                await events.take(min(left, LOOK_AGAIN_SECONDS))


@contextlib.asynccontextmanager
async def open_service(settings: ServiceSettings, tracing: Tracing | None = None) -> AsyncGenerator[Service]:
    duties = Duties()
    async with open_kept_store(settings.redis_url, settings.queue, settings.history, duties=duties) as store:
        service = Service(settings, store, lambda: connect_listener(settings.redis_url), tracing, duties)
        with contextlib.suppress(Unavailable):
            await service.check_keys()
        try:
            posting = duties.beside("duty board", service.board.post_for_ever(duties))
            async with service.wakeups, service.outbox_reader, posting:
                yield service
        finally:
            await service.pace.close()
            await service.gate.close()


def offline_service(settings: ServiceSettings | None = None) -> Service:
    """Connected to nothing: enough to describe the service."""
    settings = settings or ServiceSettings()
    return Service(settings, unconnected(settings.queue), lambda: None)


InjectedService = NamedDependency[Service]
"""The service as a route's argument."""
