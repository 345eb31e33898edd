"""The service: owns the connections, opened when the application starts and closed when it ends."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from litestar import Request
from litestar.di import NamedDependency

from tideq.api.durability_waiter import DurabilityWaiter
from tideq.api.edge.auth import Authenticator
from tideq.api.edge.problems import ErrorResponder
from tideq.api.metrics.other_processes import OtherProcesses
from tideq.api.metrics.request_metrics import ProcessMetrics, RequestTimer, StartTimer
from tideq.api.request_spans import OperationSpans, RequestTracer
from tideq.api.settings import ServiceSettings
from tideq.api.wait_estimate import WaitEstimator
from tideq.persistence.history import History
from tideq.persistence.read.status import status_reader_of
from tideq.persistence.recovery.open_store import OpenStore, open_store, unconnected_store
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.engine import Engine
from tideq.queue_core.errors import Unavailable
from tideq.queue_core.outbox.live import LiveEvents
from tideq.queue_core.outbox.stream import OutboxStream
from tideq.queue_core.partitioning.routing import Routing
from tideq.queue_core.polls.poll_wakeups import PollWakeups
from tideq.queue_core.polls.ready_lanes import ReadyLanes
from tideq.queue_core.queue_picture import QueuePictures
from tideq.queue_core.samples import Samples
from tideq.queue_core.store.access_keys import AccessKeys
from tideq.queue_core.store.audit_log import AuditLog
from tideq.queue_core.store.connect import connect_listener
from tideq.queue_core.store.duty_board import DutyBoard
from tideq.queue_core.store.replica_wait import ReplicaWait
from tideq.queue_core.task import Task
from tideq.queue_core.telemetry.spans import Tracing
from tideq.queue_core.transitions import TERMINAL

RECHECK_SECONDS = 2.0


class NoKeys(RuntimeError):
    """The service has no keys and would listen on the network."""


class Service:
    def __init__(
        self,
        settings: ServiceSettings,
        store: OpenStore,
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
        self.audit = AuditLog(client, keys)
        self.pictures = QueuePictures([part.scripts for part in parts])
        self.authenticator = Authenticator(
            self.access_keys,
            auth_disabled=settings.auth == "off",
            allowed_hosts=settings.allowed_hosts,
            duties=self.duties,
        )
        sources = [ReadyLanes(part.scripts, client, part.keys) for part in parts]
        within_limits = self.engine.ledger and self.engine.ledger.apply_limits
        self.wakeups = PollWakeups(sources, open_listener, within_limits, self.duties)
        self.outboxes = [OutboxStream(client, part.keys, number) for number, part in enumerate(parts)]
        self.live_events = LiveEvents(self.outboxes, self.duties)
        self.history = (
            History(store.database, store.engine, client, queue, settings.history) if store.database else None
        )
        lag = self.history.lag if self.history else None
        assurance = ReplicaWait(client, [part.keys for part in parts], Routing(queue.partitions))
        self.durability = DurabilityWaiter(assurance, lag, settings.durability_timeout_ms)
        self.status_reader = status_reader_of(store.database, client, self.engine) if store.database else None
        self.wait_estimator = WaitEstimator(self.engine.insight)
        self.metrics = ProcessMetrics(self.duties.counters)
        self.metrics.counters.observe_value("tideq_spans_dropped_total", lambda: tracing.lost_count if tracing else 0)
        self.start_timer: StartTimer = functools.partial(RequestTimer, self.metrics)
        if tracing is not None:
            self.start_timer = RequestTracer(tracing, self.metrics).begin
        self.error_responder = ErrorResponder(self.metrics.note_refusal)
        self.duty_board = DutyBoard(client, keys)
        self.other_processes = OtherProcesses(None, self.samples)
        self.is_closing = False

    @property
    def outbox(self) -> OutboxStream:
        return self.outboxes[0]

    async def check_keys(self) -> None:
        """Raises `NoKeys`, or `Unavailable` while the store cannot be read."""
        if self.settings.auth == "keys" and not self.settings.is_loopback and not await self.authenticator.has_keys():
            raise NoKeys(
                f"refusing to listen on {self.settings.host} without any key; "
                "create one with `tideq keys create NAME --role admin`"
            )

    async def check_keys_when_reachable(self) -> None:
        """Checks once the store can be reached, if it could not at start. Raises `NoKeys`."""
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

    def samples(self) -> Samples:
        """The metrics of this process alone."""
        skipped_count = sum(outbox.skipped_count for outbox in self.outboxes)
        return self.metrics.samples(self.wakeups.sleeping_count, skipped_count)

    @contextlib.asynccontextmanager
    async def with_other_processes(self, folder: Path | None) -> AsyncGenerator[None]:
        """Collects metrics with the other processes of this port, which share this folder."""
        async with OtherProcesses(folder, self.samples) as self.other_processes:
            yield

    def close(self) -> None:
        """Answers waiting polls with no tasks and claims nothing more; calls under way may finish."""
        self.is_closing = True
        self.wakeups.close()
        self.live_events.close()

    def operation_spans(
        self, request: Request[Any, Any, Any], verb: str, task_id: str | None = None
    ) -> OperationSpans | None:
        """Records what a request does to one task or many, so that traces show its caller; None without tracing."""
        if self.tracing is None:
            return None
        return OperationSpans(self.tracing, request, verb, self.settings.queue.queue_name, task_id)

    async def wait(self, task_id: str, seconds: float) -> Task:
        """The task once it has ended, or as it is when the time is up or the service closes."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            with self.live_events.subscribe(lambda event: event.task_id == task_id) as events:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.live_events.wait_until_reading(), RECHECK_SECONDS)
                task = await self.engine.queue.read(task_id)
                left = deadline - asyncio.get_running_loop().time()
                if task.state in TERMINAL or left <= 0 or self.is_closing:
                    return task
                # A lost event must not cost the whole wait.
                await events.take(min(left, RECHECK_SECONDS))


@contextlib.asynccontextmanager
async def open_service(settings: ServiceSettings, tracing: Tracing | None = None) -> AsyncGenerator[Service]:
    duties = Duties()
    async with open_store(settings.redis_url, settings.queue, settings.history, duties=duties) as store:
        service = Service(settings, store, lambda: connect_listener(settings.redis_url), tracing, duties)
        with contextlib.suppress(Unavailable):
            await service.check_keys()
        try:
            posting = duties.beside("duty board", service.duty_board.post_for_ever(duties))
            async with service.wakeups, service.live_events, posting:
                yield service
        finally:
            await service.wait_estimator.close()
            await service.authenticator.close()


def offline_service(settings: ServiceSettings | None = None) -> Service:
    """A service without connections, enough to make the OpenAPI document."""
    settings = settings or ServiceSettings()
    return Service(settings, unconnected_store(settings.queue), lambda: None)


InjectedService = NamedDependency[Service]
"""The service as a route's argument."""
