"""The claimer: registers a crew as one worker, and polls for as many tasks as there are slots and tokens."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

import structlog

from tideq.queue_core.background import running
from tideq.workers.runtime.patience import Patience
from tideq.workers.runtime.protocol import Answer, Protocol, Refused, Unreachable
from tideq.workers.runtime.rate import Rate
from tideq.workers.runtime.slots import Slots

POLL_SECONDS = 20.0
MAX_CLAIM = 500
REFUSED_SECONDS = 5.0
SOON_SECONDS = 1.0
MAX_PAUSE_SECONDS = 0.5
MAX_UNSENT, CLOGGED_SECONDS = 5_000, 0.1
"""A service that gives work and takes no results: what is done and not told must not pile up."""

log = structlog.get_logger("tideq.worker")


class RegistrationRefused(Exception):
    """The service will never take a worker that describes itself like this; the message says why."""


class Claimer:
    """Callbacks are given the worker id: when it is new, with what it was answered, when it is known no more."""

    def __init__(
        self,
        protocol: Protocol,
        description: dict[str, Any],
        slots: Slots,
        rate: Rate | None,
        unsent_count: Callable[[], int],
        on_registered: Callable[[str], None],
        on_answer: Callable[[str, Answer], None],
        on_unknown: Callable[[str], None],
    ) -> None:
        self.worker_id = ""
        self.queue_name = ""
        self.heartbeat_seconds = 30.0
        self._protocol = protocol
        self._description = description
        self._slots = slots
        self._rate = rate
        self._unsent_count = unsent_count
        self._on_registered = on_registered
        self._on_answer = on_answer
        self._on_unknown = on_unknown
        self._patience = Patience()
        self._poll_id = secrets.token_hex(8)
        self._early_count = 0
        self._may_claim, self._is_interrupted = asyncio.Event(), asyncio.Event()
        self._may_claim.set()

    def pause(self) -> None:
        self._may_claim.clear()
        self._is_interrupted.set()

    def resume(self) -> None:
        self._may_claim.set()

    def forget(self) -> None:
        """The service no longer knows this worker: a poll that waits would wait for nothing."""
        self.worker_id = ""
        self._is_interrupted.set()

    async def run(self) -> None:
        """Until cancelled. A waiting poll that is broken off the service notices, and claims nothing for it."""
        while True:
            await self._may_claim.wait()
            self._is_interrupted.clear()
            async with running(self._claim_for_ever()) as claiming, running(self._is_interrupted.wait()) as other:
                await asyncio.wait((claiming, other), return_when=asyncio.FIRST_COMPLETED)
                if claiming.done():
                    claiming.result()

    async def _claim_for_ever(self) -> None:
        while True:
            try:
                await self._register_if_needed()
                await self._claim()
                self._patience.restore()
            except Unreachable as error:
                log.warning("cannot claim, trying again", error=str(error))
                await self._patience.wait(error.retry_after_seconds)
            except Refused as error:
                await self._bear(error)

    async def _register_if_needed(self) -> None:
        if self.worker_id:
            return
        try:
            registration = await self._protocol.register(self._description)
        except Refused as error:
            raise RegistrationRefused(f"the service does not take this worker: {error}") from error
        self.worker_id, self.queue_name = registration.worker_id, registration.queue
        self.heartbeat_seconds = registration.heartbeat_interval_ms / 1000
        self._on_registered(self.worker_id)
        log.info("registered", worker_id=self.worker_id, task_types=self._description["task_types"])

    async def _claim(self) -> None:
        wanted, worker_id = await self._wanted(), self.worker_id
        if not worker_id:
            return
        if self._unsent_count() >= MAX_UNSENT:
            await asyncio.sleep(CLOGGED_SECONDS)
            return
        asked_at = time.monotonic()
        answer = await self._protocol.poll(worker_id, wanted, POLL_SECONDS, self._poll_id)
        # A new id once an answer has arrived: the old one would be answered with the same tasks.
        self._poll_id = secrets.token_hex(8)
        if self._rate is not None:
            self._rate.spend(len(answer.tasks))
        self._on_answer(worker_id, answer)
        await self._pause_if_early(answer, time.monotonic() - asked_at)

    async def _wanted(self) -> int:
        """At least one slot and one token; then as many as both allow."""
        await self._slots.one_free()
        if self._rate is None:
            return min(self._slots.free, MAX_CLAIM)
        await asyncio.sleep(self._rate.seconds_until_one())
        return min(self._slots.free, max(self._rate.available(), 1), MAX_CLAIM)

    async def _pause_if_early(self, answer: Answer, seconds: float) -> None:
        """A service that answers with nothing instead of waiting must not be asked without end."""
        if answer.tasks or seconds >= SOON_SECONDS:
            self._early_count = 0
            return
        await asyncio.sleep(min(0.01 * 2**self._early_count, MAX_PAUSE_SECONDS))
        self._early_count = min(self._early_count + 1, 10)

    async def _bear(self, error: Refused) -> None:
        if error.is_unknown_worker:
            worker_id, self.worker_id = self.worker_id, ""
            self._on_unknown(worker_id)
            await self._patience.wait()
        else:
            log.error("service refuses to give work", error=str(error))
            await asyncio.sleep(REFUSED_SECONDS)
