"""The claimer: registers a crew as one worker, and polls for as many tasks as there are slots and tokens.

While there is something to report, few tasks are asked for with the reports, in one request: otherwise tasks that take
no time came to be polled for, started and told each by itself (docs/workers.md). Many are worth a request of their own,
which the service answers while the worker tells of the last ones; so is whatever a rate allows.

Each task has a slot and begins as it arrives, so the service is asked to start it as it hands it out: one request and
one script less. What comes started does not lapse: an answer that did not arrive is asked for again as it was, before
anything else is. And no poll waits for started tasks while a handler runs on the loop: should that one block it, they
would lie here unread until their execution deadline.
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
from tideq.workers.runtime.backoff import Backoff
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.service_api import ServiceApi, ServiceRefusal, ServiceReply, Unreachable
from tideq.workers.runtime.slots import Slots

POLL_SECONDS = 20.0
MAX_CLAIM = 250
"""Not all slots at once: while one wave of tasks runs here, the service works on another (docs/workers.md)."""
WITH_REPORTS = 50
"""As many are asked for with reports."""
TURNS = 5
"""Of the loop, until what takes no time has run and is there to be told."""
REFUSED_SECONDS = 5.0
TELL_AGAIN_SECONDS = 300.0
SOON_SECONDS = 1.0
MAX_PAUSE_SECONDS = 0.5
MAX_UNSENT, CLOGGED_SECONDS = 5_000, 0.1
"""A service that gives work and takes no results: what is done and not told must not pile up."""

log = structlog.get_logger("tideq.worker")


class PendingPoll(NamedTuple):
    """A poll until it is answered: it may have been heard, and is then asked again as it was."""

    poll_id: str
    starts: bool
    wait_seconds: float
    began_at: float
    """When it was asked first."""


class RegistrationRefused(Exception):
    """The service will never take a worker that describes itself like this; the message says why."""


class Reports(Interface):
    """What the claimer has to know about them."""

    @property
    def unsent_count(self) -> int: ...

    @property
    def is_busy(self) -> bool: ...

    async def next_delivery(self) -> None: ...


class Poller:
    """Callbacks are given the worker id: when it is new, with an answer and when it was asked for, when it is gone."""

    def __init__(
        self,
        protocol: ServiceApi,
        description: dict[str, Any],
        slots: Slots,
        rate: Rate | None,
        reports: Reports,
        on_registered: Callable[[str], None],
        on_answer: Callable[[str, ServiceReply, float], None],
        on_unknown: Callable[[str], None],
        is_loop_free: Callable[[], bool],
    ) -> None:
        self.worker_id = ""
        self.queue_name = ""
        self.heartbeat_seconds = 30.0
        self._protocol = protocol
        self._description = description
        self._slots = slots
        self._rate = rate
        self._reports = reports
        self._on_registered = on_registered
        self._on_answer = on_answer
        self._on_unknown = on_unknown
        self._is_loop_free = is_loop_free
        self._patience = Backoff()
        self._told = LogOnce(TELL_AGAIN_SECONDS)
        self._asking: PendingPoll | None = None
        self._asked_id, self._asked_at, self._asked_count = secrets.token_hex(8), 0.0, 0
        """With reports: how many slots are kept for it until it is answered."""
        self._has_found_none = False
        """By its last poll."""
        self._can_start = False
        """Whether the service can, as it hands tasks out."""
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

    def forget(self) -> None:
        """The service no longer knows this worker: a poll that waits would wait for nothing."""
        self._drop_id()
        self._is_interrupted.set()

    def claim_now(self, worker_id: str, *, is_time: bool) -> dict[str, Any]:
        """What a request with reports asks for besides. Repeated until it is answered: it may have been heard."""
        if worker_id != self.worker_id:
            return {}
        if is_time and not self._asked_count and self._may_poll():
            self._asked_count, self._asked_at = self._slots.free, time.monotonic()
            self._slots.take(self._asked_count)
        return _wish(self._asked_count, self._asked_id, starts=self._can_start) if self._asked_count else {}

    def answered(self, worker_id: str, answer: ServiceReply | None) -> None:
        """None where it was refused."""
        self._slots.give_back(self._asked_count)
        self._asked_count, self._asked_id = 0, secrets.token_hex(8)
        if answer is not None:
            self._on_answer(worker_id, answer, self._asked_at)

    def _may_poll(self) -> bool:
        if self.is_paused or self._asking is not None or self._rate is not None:
            return False
        return 0 < self._slots.free <= WITH_REPORTS and self._reports.unsent_count < MAX_UNSENT

    def _drop_id(self) -> str:
        """Nothing that was asked for under it will be answered."""
        worker_id, self.worker_id = self.worker_id, ""
        self._asking = None
        self.answered(worker_id, None)
        return worker_id

    async def run(self) -> None:
        """Until cancelled. A waiting poll that is broken off the service notices, and claims nothing for it."""
        while True:
            await self._may_claim.wait()
            self._is_interrupted.clear()
            async with (
                background_task(self._claim_for_ever()) as claiming,
                background_task(self._is_interrupted.wait()) as other,
            ):
                await asyncio.wait((claiming, other), return_when=asyncio.FIRST_COMPLETED)
                if claiming.done():
                    claiming.result()
            await self._take_up_what_was_started()

    async def _take_up_what_was_started(self) -> None:
        """For a poll that was broken off when its answer may have been on its way: it is handed back as it comes."""
        if self._asking is not None and self._asking.starts and self.worker_id:
            self._asking = self._asking._replace(wait_seconds=0)
            with contextlib.suppress(Unreachable, ServiceRefusal):
                await self._poll(self.worker_id, 1)

    async def _claim_for_ever(self) -> None:
        while True:
            try:
                await self._register_if_needed()
                await self._claim()
                self._patience.restore()
                self._told.forget()
            except Unreachable as error:
                if self._told.is_new(str(error)):
                    log.warning("cannot claim, trying again", error=str(error))
                await self._patience.wait(error.retry_after_seconds)
            except ServiceRefusal as error:
                await self._wait_out(error)

    async def _register_if_needed(self) -> None:
        if self.worker_id:
            return
        try:
            registration = await self._protocol.register(self._description)
        except ServiceRefusal as error:
            raise RegistrationRefused(f"the service does not take this worker: {error}") from error
        self.worker_id, self.queue_name = registration.worker_id, registration.queue
        self._can_start = registration.can_start_claimed
        self.heartbeat_seconds = registration.heartbeat_interval_ms / 1000
        self._on_registered(self.worker_id)
        log.info("registered", worker_id=self.worker_id, task_types=self._description["task_types"])

    async def _claim(self) -> None:
        wanted, worker_id = await self._wanted(), self.worker_id
        if not worker_id:
            return
        if self._reports.unsent_count >= MAX_UNSENT:
            await asyncio.sleep(CLOGGED_SECONDS)
        elif self._asking is None and wanted <= WITH_REPORTS and self._rate is None and await self._will_report():
            await self._reports.next_delivery()
        else:
            await self._poll(worker_id, wanted)

    async def _will_report(self) -> bool:
        for _ in range(TURNS):
            if self._reports.is_busy:
                return True
            await asyncio.sleep(0)
        return False

    async def _poll(self, worker_id: str, wanted: int) -> None:
        asked_at = time.monotonic()
        self._asking = asking = self._asking or self._next_asking(asked_at)
        wish = _wish(wanted, asking.poll_id, starts=asking.starts)
        answer = await self._protocol.poll(worker_id, asking.wait_seconds, wish)
        # Another id once an answer has arrived: the old one would be answered with the same tasks.
        self._asking, self._has_found_none = None, not answer.tasks
        if self._rate is not None:
            self._rate.spend(len(answer.tasks))
        self._on_answer(worker_id, answer, asking.began_at)
        if asking.wait_seconds:
            await self._pause_if_early(answer, time.monotonic() - asked_at)
        if 0 < len(answer.tasks) <= WITH_REPORTS and await self._will_report():
            # The service does one thing at a time: what they have to tell is not to wait behind a poll for nothing.
            await self._reports.next_delivery()

    def _next_asking(self, now: float) -> PendingPoll:
        poll_id = secrets.token_hex(8)
        if self._is_loop_free() and not self._asked_count:
            return PendingPoll(poll_id, self._can_start, POLL_SECONDS, now)
        if self._can_start and not self._has_found_none:
            return PendingPoll(poll_id, True, 0, now)
        return PendingPoll(poll_id, False, POLL_SECONDS, now)

    async def _wanted(self) -> int:
        """At least one slot and one token; then as many as both allow."""
        await self._slots.one_free()
        if self._rate is None:
            return min(self._slots.free, MAX_CLAIM)
        await asyncio.sleep(self._rate.seconds_until_one())
        return min(self._slots.free, max(self._rate.available(), 1), MAX_CLAIM)

    async def _pause_if_early(self, answer: ServiceReply, seconds: float) -> None:
        """A service that answers with nothing instead of waiting must not be asked without end."""
        if answer.tasks or seconds >= SOON_SECONDS:
            self._early_count = 0
            return
        await asyncio.sleep(min(0.01 * 2**self._early_count, MAX_PAUSE_SECONDS))
        self._early_count = min(self._early_count + 1, 10)

    async def _wait_out(self, error: ServiceRefusal) -> None:
        if error.is_unknown_worker:
            self._on_unknown(self._drop_id())
            await self._patience.wait()
        elif self._can_start and error.is_about_content:
            # An older service took the place of the one that registered this worker.
            self._can_start, self._asking = False, None
        else:
            log.error("service refuses to give work", error=str(error))
            await asyncio.sleep(REFUSED_SECONDS)


def _wish(count: int, poll_id: str, *, starts: bool) -> dict[str, Any]:
    """An older service is not told of what it does not know."""
    return {"available_capacity": count, "poll_id": poll_id, **({"start_claimed": True} if starts else {})}
