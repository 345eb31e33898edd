"""Duties: what a process does for as long as it runs. Each fails, waits and begins anew by itself, and none unseen.

A failure is logged with its traceback once for each kind while it lasts, counted, and waited out with growing pauses.
What a stale duty means for the process is for those to say who show `Duties.stale`.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple

import structlog

from tideq.queue_core.background import end
from tideq.queue_core.errors import HistoryRefused, StoreRefused, Unavailable
from tideq.queue_core.readings import Counters, Labels
from tideq.queue_core.repeats import Repeats

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 3.0
"""Short, so that all goes on within seconds of a store's return."""
PATIENCE_SECONDS = 30.0
"""How long a duty may fail, or be later than it should, before it is stale."""
TELL_AGAIN_SECONDS = 300.0
CUSTODY = "custody"
"""What opens the store: the reason why it is closed is this one's."""
RESTARTS = "tideq_duty_restarts_total"

log = structlog.get_logger(__name__)


class DutiesEnded(RuntimeError):
    """A duty ended that should never; the process does only half of what it is there for."""


class DutyEnded(RuntimeError):
    """A duty returned although there is always more to do."""


class Stale(NamedTuple):
    duty: str
    seconds: float
    """Since it last succeeded."""
    error: str
    """Why it last failed; empty where it merely takes long."""


class Duty:
    def __init__(self, name: str, every_seconds: float, clock: Callable[[], float]) -> None:
        self.name = name
        self._most_seconds = every_seconds + PATIENCE_SECONDS
        self._clock = clock
        self._good_at = clock()
        self._has_succeeded = False
        self._has_been_well = False
        self._failing_since: float | None = None
        self._error = ""
        self._waiting_since: float | None = None
        self._pause = FIRST_PAUSE_SECONDS
        self._told = Repeats(TELL_AGAIN_SECONDS, clock)

    def succeeded(self) -> None:
        """To be called whenever it has done what it is there for."""
        self._good_at = self._clock()
        self._has_succeeded = True
        self._recovered()

    def failed(self, error: Exception) -> None:
        """Also for a part of it, where it goes on with the rest."""
        if self._failing_since is None:
            self._failing_since = self._clock()
        self._error = str(error) or type(error).__name__
        if self._told.is_news(f"{type(error).__name__} {getattr(error, 'code', '')}"):
            # Of a server that is away everything is known; else it matters where it happened.
            is_plain = isinstance(error, Unavailable) and not isinstance(error, StoreRefused | HistoryRefused)
            if is_plain:
                log.warning("duty failed", duty=self.name, error=self._error)
            else:
                log.error("duty failed", duty=self.name, error=self._error, exc_info=error)

    @contextlib.contextmanager
    def waiting(self) -> Generator[None]:
        """For something to happen: it is as well as it was, however long that takes.

        A failure ends with a wait that lasts: there is nothing to do that could fail. That is no success: of several
        replicators those that wait for their turn have written nothing.
        """
        self._waiting_since = began = self._clock()
        try:
            yield
        finally:
            self._look_at_wait()
            self._waiting_since = None
            waited_seconds = self._clock() - began
            self._good_at += waited_seconds
            if self._failing_since is not None:
                self._failing_since += waited_seconds

    def next_pause(self) -> float:
        pause = self._pause * random.uniform(0.5, 1)
        self._pause *= 2
        return pause

    @property
    def has_succeeded(self) -> bool:
        """At least once since the process began."""
        return self._has_succeeded

    @property
    def error(self) -> str:
        """Why it fails just now; empty where it does not."""
        self._look_at_wait()
        return self._error

    @property
    def last_success_age(self) -> float:
        self._look_at_wait()
        is_well = self._waiting_since is not None and self._failing_since is None
        return 0.0 if is_well else self._clock() - self._good_at

    @property
    def is_stale(self) -> bool:
        """Failing for long, or since it began, or later than it should be."""
        self._look_at_wait()
        if self._failing_since is None:
            return self.last_success_age > self._most_seconds
        until = self._clock() if self._waiting_since is None else self._waiting_since
        return not self._has_been_well or until - self._failing_since > PATIENCE_SECONDS

    @property
    def stale(self) -> Stale | None:
        return Stale(self.name, round(self.last_success_age, 1), self.error) if self.is_stale else None

    def _look_at_wait(self) -> None:
        if self._waiting_since is not None and self._clock() - self._waiting_since > PATIENCE_SECONDS:
            self._recovered()

    def _recovered(self) -> None:
        self._has_been_well = True
        if self._failing_since is not None:
            seconds = round(self._clock() - self._failing_since, 1)
            log.info("duty recovered", duty=self.name, after_seconds=seconds)
            self._failing_since, self._error, self._pause = None, "", FIRST_PAUSE_SECONDS
            self._told.forget()


Work = Callable[[Duty], Awaitable[None]]
"""Does its duty for ever, and says each time that it succeeded."""


class Duties:
    """All duties of a process; several may have one name, for instance one for each partition."""

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

    async def keep(
        self,
        name: str,
        work: Work,
        every_seconds: float = 0.0,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """Do this for ever; returns never, and raises nothing but its own cancellation."""
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

    async def keep_every(
        self,
        name: str,
        every_seconds: float,
        do: Callable[[], Awaitable[object]],
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        """Do this again and again, with so much time in between."""

        async def work(duty: Duty) -> None:
            while True:
                await do()
                duty.succeeded()
                await asyncio.sleep(every_seconds)

        await self.keep(name, work, every_seconds, longest_pause_seconds)

    def start(self, name: str, work: Work, longest_pause_seconds: float = LONGEST_PAUSE_SECONDS) -> asyncio.Task[None]:
        """Beside everything else, until it is given to `stop`."""
        return self._start(name, self.keep(name, work, longest_pause_seconds=longest_pause_seconds))

    @contextlib.asynccontextmanager
    async def beside(self, name: str, keeping: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
        """For as long as the block lasts: what keeps a duty by itself."""
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
        await end(*jobs)
        self._stopping.difference_update(jobs)

    async def one_ended(self) -> None:
        """Raises once one that was started has ended and nobody stopped it."""
        await self._ended.wait()
        raise DutiesEnded("a duty of this process has ended for good: see the log")

    @property
    def stale(self) -> list[Stale]:
        """By name, of each name the worst."""
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
        """Why a duty fails just now; empty where it does not."""
        return next((duty.error for duty in self._all if duty.name == name and duty.error), "")

    def _worst(self, of: Callable[[Duty], float]) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for duty in list(self._all):
            found[(duty.name,)] = max(found.get((duty.name,), 0.0), of(duty))
        return found

    def _note_end(self, job: asyncio.Task[None]) -> None:
        if job not in self._stopping:
            error = None if job.cancelled() else job.exception()
            log.error("duty ended for good", duty=job.get_name(), exc_info=error)
            self._ended.set()


async def _failure_of(work: Work, duty: Duty) -> Exception:
    """What it ends with. Raises only where this task itself is cancelled."""
    try:
        await work(duty)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return DutyEnded(f"something it waited for was cancelled: {error}")
    except Exception as error:
        return error
    return DutyEnded("it returned")
