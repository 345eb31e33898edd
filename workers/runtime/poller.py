"""The poller: registers a consumer as one worker, and polls for as many tasks as it has free slots and rate tokens.

While there are reports to send, a claim for few tasks goes with them in one request: otherwise short tasks are polled,
started and reported one by one (docs/workers.md). A claim for many tasks, or under a rate, is a poll of its own, which
the service answers while the worker reports the last tasks.

A task has a slot and runs as it arrives, so the poll lets the service start it: one request and one script less. A
started task does not lapse, so a poll whose reply was lost is repeated before any other claim. While a handler runs on
the loop, polls for started tasks do not wait: if it blocks the loop, the tasks would stay unread until their deadline.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from typing import Protocol as Interface

import structlog

from tideq.queue_core.background import background_task
from tideq.queue_core.log_once import LogOnce
from tideq.workers.runtime.backoff import PollBackoff
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.service_api import ServiceApi, ServiceRefusal, ServiceReply, Unreachable
from tideq.workers.runtime.slots import Slots

POLL_SECONDS = 20.0
MAX_CLAIM = 250
"""Not all slots at once: while one wave of tasks runs here, the service works on another (docs/workers.md)."""
MAX_WITH_REPORTS = 50
"""Above this many free slots a claim is a poll of its own."""
LOOP_TURNS = 5
"""Turns of the loop until short tasks have run and have reports to send."""
REFUSED_SECONDS = 5.0
LOG_AGAIN_SECONDS = 300.0
EARLY_SECONDS = 1.0
MAX_PAUSE_SECONDS = 0.5
MAX_UNSENT, BACKLOG_SECONDS = 5_000, 0.1
"""Claims stop at this many unsent reports: the service may hand out tasks and accept no results."""

log = structlog.get_logger("tideq.worker")


class PendingPoll(NamedTuple):
    """A poll without a reply yet. The service may have carried it out, so it is repeated unchanged."""

    poll_id: str
    start_claimed: bool
    wait_seconds: float
    began_at: float
    """Time of the first request."""


class RegistrationRefused(Exception):
    """The service refuses this worker description for good; the message has the reason."""


class Reports(Interface):
    """The part of the reporter that the poller needs."""

    @property
    def unsent_count(self) -> int: ...

    @property
    def is_busy(self) -> bool: ...

    async def next_delivery(self) -> None: ...


class Poller:
    """Callbacks receive the worker id; `on_reply` also the reply and the time of its request."""

    def __init__(
        self,
        api: ServiceApi,
        description: dict[str, Any],
        slots: Slots,
        rate: Rate | None,
        reports: Reports,
        on_registered: Callable[[str], None],
        on_reply: Callable[[str, ServiceReply, float], None],
        on_unknown: Callable[[str], None],
        is_loop_free: Callable[[], bool],
    ) -> None:
        self.worker_id = ""
        self.queue_name = ""
        self.heartbeat_seconds = 30.0
        self._api = api
        self._description = description
        self._slots = slots
        self._rate = rate
        self._reports = reports
        self._on_registered = on_registered
        self._on_reply = on_reply
        self._on_unknown = on_unknown
        self._is_loop_free = is_loop_free
        self._backoff = PollBackoff()
        self._log_once = LogOnce(LOG_AGAIN_SECONDS)
        self._pending: PendingPoll | None = None
        self._sync_claim_id, self._sync_claim_at, self._sync_claim_count = secrets.token_hex(8), 0.0, 0
        """The claim with reports: its slots stay taken until the reply arrives."""
        self._last_was_empty = False
        self._can_start = False
        """Whether the service can start tasks as it hands them out."""
        self._early_count = 0
        self._may_claim, self._is_interrupted = asyncio.Event(), asyncio.Event()
        self._may_claim.set()

    @property
    def is_paused(self) -> bool:
        return not self._may_claim.is_set()

    def pause(self) -> None:
        self._may_claim.clear()
        self._is_interrupted.set()

    def resume(self) -> None:
        self._may_claim.set()

    def on_unknown_worker(self) -> None:
        """Interrupts a waiting poll: the service would never return tasks to it."""
        self._drop_id()
        self._is_interrupted.set()

    def claim_now(self, worker_id: str, *, claim_new: bool) -> dict[str, Any]:
        """The claim fields for a request with reports. The same claim is repeated until its reply arrives."""
        if worker_id != self.worker_id:
            return {}
        if claim_new and not self._sync_claim_count and self._may_poll():
            self._sync_claim_count, self._sync_claim_at = self._slots.free, time.monotonic()
            self._slots.acquire(self._sync_claim_count)
        if not self._sync_claim_count:
            return {}
        return _claim_fields(self._sync_claim_count, self._sync_claim_id, start_claimed=self._can_start)

    def handle_reply(self, worker_id: str, reply: ServiceReply | None) -> None:
        self._slots.release(self._sync_claim_count)
        self._sync_claim_count, self._sync_claim_id = 0, secrets.token_hex(8)
        if reply is not None:
            self._on_reply(worker_id, reply, self._sync_claim_at)

    def _may_poll(self) -> bool:
        if self.is_paused or self._pending is not None or self._rate is not None:
            return False
        return 0 < self._slots.free <= MAX_WITH_REPORTS and self._reports.unsent_count < MAX_UNSENT

    def _drop_id(self) -> str:
        """Drops the id with its pending claims, which the service will not answer."""
        worker_id, self.worker_id = self.worker_id, ""
        self._pending = None
        self.handle_reply(worker_id, None)
        return worker_id

    async def run(self) -> None:
        """Runs until cancelled. The service notices an interrupted poll and claims nothing for it."""
        while True:
            await self._may_claim.wait()
            self._is_interrupted.clear()
            async with (
                background_task(self._claim_forever()) as claiming,
                background_task(self._is_interrupted.wait()) as interrupted,
            ):
                await asyncio.wait((claiming, interrupted), return_when=asyncio.FIRST_COMPLETED)
                if claiming.done():
                    claiming.result()
            await self._collect_started_tasks()

    async def _collect_started_tasks(self) -> None:
        """After an interrupted poll, whose reply may have been lost: fetches its started tasks, to be released."""
        if self._pending is not None and self._pending.start_claimed and self.worker_id:
            self._pending = self._pending._replace(wait_seconds=0)
            with contextlib.suppress(Unreachable, ServiceRefusal):
                await self._poll(self.worker_id, 1)

    async def _claim_forever(self) -> None:
        while True:
            try:
                await self._register_if_needed()
                await self._claim()
                self._backoff.reset()
                self._log_once.forget()
            except Unreachable as error:
                if self._log_once.is_new(str(error)):
                    log.warning("claim failed, retrying", error=str(error))
                await self._backoff.wait(error.retry_after_seconds)
            except ServiceRefusal as error:
                await self._wait_out(error)

    async def _register_if_needed(self) -> None:
        if self.worker_id:
            return
        try:
            registration = await self._api.register(self._description)
        except ServiceRefusal as error:
            raise RegistrationRefused(f"the service refused to register this worker: {error}") from error
        self.worker_id, self.queue_name = registration.worker_id, registration.queue
        self._can_start = registration.can_start_claimed
        self.heartbeat_seconds = registration.heartbeat_interval_ms / 1000
        self._on_registered(self.worker_id)
        log.info("worker registered", worker_id=self.worker_id, task_types=self._description["task_types"])

    async def _claim(self) -> None:
        count, worker_id = await self._claim_size(), self.worker_id
        if not worker_id:
            return
        if self._reports.unsent_count >= MAX_UNSENT:
            await asyncio.sleep(BACKLOG_SECONDS)
        elif self._pending is None and count <= MAX_WITH_REPORTS and self._rate is None and await self._will_report():
            await self._reports.next_delivery()
        else:
            await self._poll(worker_id, count)

    async def _will_report(self) -> bool:
        for _ in range(LOOP_TURNS):
            if self._reports.is_busy:
                return True
            await asyncio.sleep(0)
        return False

    async def _poll(self, worker_id: str, count: int) -> None:
        sent_at = time.monotonic()
        self._pending = pending = self._pending or self._next_poll(sent_at)
        fields = _claim_fields(count, pending.poll_id, start_claimed=pending.start_claimed)
        reply = await self._api.poll(worker_id, pending.wait_seconds, fields)
        # The next poll needs a new id: the service answers a repeated id with the same tasks.
        self._pending, self._last_was_empty = None, not reply.tasks
        if self._rate is not None:
            self._rate.spend(len(reply.tasks))
        self._on_reply(worker_id, reply, pending.began_at)
        if pending.wait_seconds:
            await self._pause_if_early(reply, time.monotonic() - sent_at)
        if 0 < len(reply.tasks) <= MAX_WITH_REPORTS and await self._will_report():
            # The service handles one request of a worker at a time: reports must not wait behind an empty poll.
            await self._reports.next_delivery()

    def _next_poll(self, now: float) -> PendingPoll:
        poll_id = secrets.token_hex(8)
        if self._is_loop_free() and not self._sync_claim_count:
            return PendingPoll(poll_id, self._can_start, POLL_SECONDS, now)
        if self._can_start and not self._last_was_empty:
            return PendingPoll(poll_id, True, 0, now)
        return PendingPoll(poll_id, False, POLL_SECONDS, now)

    async def _claim_size(self) -> int:
        """Waits for one slot and one token; returns as many as both allow."""
        await self._slots.wait_for_one()
        if self._rate is None:
            return min(self._slots.free, MAX_CLAIM)
        await asyncio.sleep(self._rate.seconds_until_one())
        return min(self._slots.free, max(self._rate.available(), 1), MAX_CLAIM)

    async def _pause_if_early(self, reply: ServiceReply, seconds: float) -> None:
        """Pauses longer each time: a service that answers empty polls at once must not be polled in a tight loop."""
        if reply.tasks or seconds >= EARLY_SECONDS:
            self._early_count = 0
            return
        await asyncio.sleep(min(0.01 * 2**self._early_count, MAX_PAUSE_SECONDS))
        self._early_count = min(self._early_count + 1, 10)

    async def _wait_out(self, error: ServiceRefusal) -> None:
        if error.is_unknown_worker:
            self._on_unknown(self._drop_id())
            await self._backoff.wait()
        elif self._can_start and error.is_invalid_request:
            # An older service, which refuses `start_claimed`, replaced the one that registered this worker.
            self._can_start, self._pending = False, None
        else:
            log.error("claim refused", error=str(error))
            await asyncio.sleep(REFUSED_SECONDS)


def _claim_fields(count: int, poll_id: str, *, start_claimed: bool) -> dict[str, Any]:
    """An older service refuses `start_claimed`, so it is left out where false."""
    return {"available_capacity": count, "poll_id": poll_id, **({"start_claimed": True} if start_claimed else {})}
