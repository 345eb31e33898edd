"""Duties: work that a process repeats for as long as it runs, each restarted after a failure.

A failure is counted, logged with its traceback once for each kind of error, and followed by a growing pause. The
callers of `Duties.stale` decide what a stale duty means for the process.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple

import structlog

from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.errors import HistoryRefused, StoreRefused, Unavailable
from tideq.queue_core.log_once import LogOnce
from tideq.queue_core.samples import Counters, Labels

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 3.0
"""Short, so that duties continue within seconds after the store returns."""
STALE_AFTER_SECONDS = 30.0
"""How long a duty may fail, or be overdue, before it is stale."""
LOG_AGAIN_SECONDS = 300.0
STORE_CHECK = "store check"
"""Name of the duty that compares the store with history and opens it; its error explains a closed store."""
RESTARTS = "tideq_duty_restarts_total"

log = structlog.get_logger(__name__)


class DutiesEnded(RuntimeError):
    """A duty ended although it should run as long as the process: the process must stop."""


class DutyReturned(RuntimeError):
    """A duty returned although duties never finish."""


class Stale(NamedTuple):
    duty: str
    seconds: float
    """Since it last succeeded."""
    error: str
    """Why it last failed; empty if it is only overdue."""


class Duty:
    def __init__(self, name: str, every_seconds: float, clock: Callable[[], float]) -> None:
        self.name = name
        self._stale_after_seconds = every_seconds + STALE_AFTER_SECONDS
        self._clock = clock
        self._succeeded_at = clock()
        self._has_succeeded = False
        self._has_been_healthy = False
        self._failing_since: float | None = None
        self._error = ""
        self._waiting_since: float | None = None
        self._pause = FIRST_PAUSE_SECONDS
        self._logged = LogOnce(LOG_AGAIN_SECONDS, clock)

    def succeeded(self) -> None:
        """To be called by the work after each success."""
        self._succeeded_at = self._clock()
        self._has_succeeded = True
        self._recovered()

    def failed(self, error: Exception) -> None:
        """To be called by the work when a part of it failed and the rest continues."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        self._error = str(error) or type(error).__name__
        if self._logged.is_new(f"{type(error).__name__} {getattr(error, 'code', '')}"):
            # A server that is unreachable needs no traceback.
            is_plain = isinstance(error, Unavailable) and not isinstance(error, StoreRefused | HistoryRefused)
            if is_plain:
                log.warning("duty failed", duty=self.name, error=self._error)
            else:
                log.error("duty failed", duty=self.name, error=self._error, exc_info=error)

    @contextlib.contextmanager
    def waiting(self) -> Generator[None]:
        """While the block runs, the duty waits for an event and does not become stale.

        A long wait ends a failure, because there is nothing to do that could fail. It is no success: of several
        replicators, those that wait for the lock have written nothing.
        """
        self._waiting_since = began = self._clock()
        try:
            yield
        finally:
            self._end_failure_after_wait()
            self._waiting_since = None
            waited_seconds = self._clock() - began
            self._succeeded_at += waited_seconds
            if self._failing_since is not None:
                self._failing_since += waited_seconds

    def next_pause(self) -> float:
        pause = self._pause * random.uniform(0.5, 1)
        self._pause *= 2
        return pause

    @property
    def has_succeeded(self) -> bool:
        """At least once since the process started."""
        return self._has_succeeded

    @property
    def error(self) -> str:
        """The current failure; empty while the duty succeeds."""
        self._end_failure_after_wait()
        return self._error

    @property
    def last_success_age(self) -> float:
        self._end_failure_after_wait()
        is_healthy = self._waiting_since is not None and self._failing_since is None
        return 0.0 if is_healthy else self._clock() - self._succeeded_at

    @property
    def is_stale(self) -> bool:
        """Failing for long, failing since it started, or overdue."""
        self._end_failure_after_wait()
        if self._failing_since is None:
            return self.last_success_age > self._stale_after_seconds
        until = self._clock() if self._waiting_since is None else self._waiting_since
        return not self._has_been_healthy or until - self._failing_since > STALE_AFTER_SECONDS

    @property
    def stale(self) -> Stale | None:
        return Stale(self.name, round(self.last_success_age, 1), self.error) if self.is_stale else None

    def _end_failure_after_wait(self) -> None:
        if self._waiting_since is not None and self._clock() - self._waiting_since > STALE_AFTER_SECONDS:
            self._recovered()

    def _recovered(self) -> None:
        self._has_been_healthy = True
        if self._failing_since is not None:
            seconds = round(self._clock() - self._failing_since, 1)
            log.info("duty recovered", duty=self.name, after_seconds=seconds)
            self._failing_since, self._error, self._pause = None, "", FIRST_PAUSE_SECONDS
            self._logged.forget()


Work = Callable[[Duty], Awaitable[None]]
"""Runs without end and calls `Duty.succeeded` after each success."""


class Duties:
    """All duties of a process. Several may share a name, for instance one for each partition."""

    def __init__(self, counters: Counters | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.counters = counters or Counters()
        self._clock = clock
        self._all: list[Duty] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self.counters.observe("tideq_duty_stale", lambda: self._worst(lambda duty: float(duty.is_stale)))
        self.counters.observe(
            "tideq_duty_last_success_age_seconds", lambda: self._worst(lambda duty: duty.last_success_age)
        )

    async def add(
        self,
        name: str,
        work: Work,
        every_seconds: float = 0.0,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """Run a duty until cancelled. Never returns, and raises nothing but its own cancellation."""
        duty = Duty(name, every_seconds, self._clock)
        self.counters.declare(RESTARTS, (name,))
        self._all.append(duty)
        try:
            while True:
                duty.failed(await _failure_of(work, duty))
                await asyncio.sleep(min(duty.next_pause(), longest_pause_seconds))
                self.counters.add(RESTARTS, name)
        finally:
            self._all.remove(duty)

    async def add_periodic(
        self,
        name: str,
        every_seconds: float,
        do: Callable[[], Awaitable[object]],
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """Run `do` again and again, with `every_seconds` between two runs."""

        async def work(duty: Duty) -> None:
            while True:
                await do()
                duty.succeeded()
                await asyncio.sleep(every_seconds)

        await self.add(name, work, every_seconds, longest_pause_seconds)

    def start(self, name: str, work: Work, longest_pause_seconds: float = LONGEST_PAUSE_SECONDS) -> asyncio.Task[None]:
        """Run a duty in the background until `stop`."""
        return self._start(name, self.add(name, work, longest_pause_seconds=longest_pause_seconds))

    @contextlib.asynccontextmanager
    async def beside(self, name: str, keeping: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
        """While the block runs, runs work that keeps a duty of its own."""
        job = self._start(name, keeping)
        try:
            yield
        finally:
            await self.stop(job)

    def _start(self, name: str, keeping: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        job = asyncio.create_task(keeping, name=name)
        job.add_done_callback(self._note_end)
        return job

    async def stop(self, *jobs: asyncio.Task[None]) -> None:
        self._stopping.update(jobs)
        await cancel_and_wait(*jobs)
        self._stopping.difference_update(jobs)

    async def wait_for_unexpected_end(self) -> None:
        """Raises DutiesEnded as soon as a started duty ends without `stop`."""
        await self._ended.wait()
        raise DutiesEnded("a duty of this process ended: see `duty ended` in the log")

    @property
    def stale(self) -> list[Stale]:
        """The stale duties by name; the worst one where several share a name."""
        found: dict[str, Stale] = {}
        for duty in list(self._all):
            if (stale := duty.stale) and (duty.name not in found or stale.seconds > found[duty.name].seconds):
                found[duty.name] = stale
        return [found[name] for name in sorted(found)]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({duty.name for duty in self._all}))

    def has_done(self, name: str) -> bool:
        """Whether a duty has succeeded at least once since the process began."""
        return any(duty.has_succeeded for duty in self._all if duty.name == name)

    def error_of(self, name: str) -> str:
        """Returns why a duty fails now; empty if it does not."""
        return next((duty.error for duty in self._all if duty.name == name and duty.error), "")

    def _worst(self, of: Callable[[Duty], float]) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for duty in list(self._all):
            found[(duty.name,)] = max(found.get((duty.name,), 0.0), of(duty))
        return found

    def _note_end(self, job: asyncio.Task[None]) -> None:
        if job not in self._stopping:
            error = None if job.cancelled() else job.exception()
            log.error("duty ended", duty=job.get_name(), exc_info=error)
            self._ended.set()


async def _failure_of(work: Work, duty: Duty) -> Exception:
    """Returns the error that the work ends with; raises only if this asyncio task itself is cancelled."""
    try:
        await work(duty)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return DutyReturned(f"an operation that the duty awaited was cancelled: {error}")
    except Exception as error:
        return error
    return DutyReturned("the duty returned")
