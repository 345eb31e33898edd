"""Waiting for work without asking the store again and again.

One subscription a process hears what became ready and wakes as many waiting polls as that is work for. Notifications
may be lost, so once a second, while somebody waits, one survey looks at the lanes for all of them; it also learns when
the next hidden task or silent worker falls due, and one poll is woken then to recover it. A waiting poll holds no
connection.

Several processes hear the same notification and each wakes its own pollers; those that come too late find nothing
and go on waiting in their old place.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from tideq.queue_core.background import end
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.engine.store_errors import store_errors
from tideq.queue_core.engine.subscription import subscribed
from tideq.queue_core.engine.waiting_room import Waiter, WaitingRoom
from tideq.queue_core.engine.wake_source import Survey, WakeSource
from tideq.queue_core.errors import QueueError
from tideq.queue_core.task import Claim, Stop

SURVEY_SECONDS = 1.0
MIN_SURVEY_GAP_SECONDS, MAX_SURVEY_GAP_SECONDS = 0.01, 0.2
GAP_PER_SURVEY = 20
"""Surveys take a twentieth of the time: one of a queue with thousands of lanes takes milliseconds."""
MAX_TOLD = 10_000

log = structlog.get_logger(__name__)


class Wakeups:
    """Use as an async context manager; leaving it answers every waiting poll."""

    def __init__(
        self,
        sources: Sequence[WakeSource],
        open_listener: Callable[[], Any],
        within_limits: Callable[[Mapping[int, Survey]], Awaitable[Sequence[Survey]]] | None = None,
        duties: Duties | None = None,
    ) -> None:
        """`within_limits` takes from surveys of several partitions what limits that they share hold back."""
        self._within_limits = within_limits
        self._duties = duties or Duties()
        self._sources = {source.channel: source for source in sources}
        self._open_listener = open_listener
        self._room = WaitingRoom()
        self._due_timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._jobs: list[asyncio.Task[None]] = []
        self._is_open = False
        self._should_look = asyncio.Event()
        self._told_stops: dict[str, frozenset[Stop]] = {}
        self._subscribed = asyncio.Event()
        self._learning: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Wakeups":
        self._is_open = True
        self._jobs = [
            self._duties.start("wake-up subscription", self._listen),
            self._duties.start("wake-up survey", self._survey_while_waited_for),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self._duties.stop(*self._jobs)
        await end(*self._learning)

    def close(self) -> None:
        """Answer every waiting poll with what it has: nothing new is claimed from here on."""
        self._is_open = False
        self._room.wake_all()
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None

    @property
    def sleeping_count(self) -> int:
        """Polls that have looked, found nothing and wait."""
        return self._room.sleeping_count

    async def listening(self) -> None:
        """Returns once the subscription stands."""
        await self._subscribed.wait()

    async def poll(
        self,
        waiter: Waiter,
        claim: Callable[[], Awaitable[Claim]],
        hand_back: Callable[[Claim], Awaitable[object]],
        wait_seconds: float,
    ) -> Claim:
        """Claim as soon as there is something to claim; an empty claim when the time is up or the service closes.

        A caller that goes away while waiting has nothing claimed for it; what a claim in flight got is handed back.
        """
        deadline = asyncio.get_running_loop().time() + wait_seconds
        self._room.enter(waiter)
        try:
            while True:
                waiter.listen_again()
                got = await _claim_or_hand_back(claim, hand_back)
                left = deadline - asyncio.get_running_loop().time()
                has_news = self._is_news(waiter.worker_id, got.stops)
                if got.tasks or has_news or got.should_drain or left <= 0 or not self._is_open:
                    return got
                waiter.profile, waiter.is_eligible = got.profile, got.worker_status == "active"
                waiter.held_back = {each.task_type: each for each in got.held_back}
                self._note_due(got.retry_at_ms, got.now_ms)
                # Nobody else is woken for the end of this worker's circuits: it looks again by itself.
                pause = min(left, _seconds_to_trial(got))
                is_over = not await waiter.wait(pause) and pause == left
                if is_over or not self._is_open:
                    return got
        finally:
            self._room.leave(waiter)
            if waiter.is_woken:
                # It leaves with a wake-up that it had no use for and that others may have: one look finds them.
                self._should_look.set()

    def _is_news(self, worker_id: str, stops: tuple[Stop, ...]) -> bool:
        """What to stop is told with every answer for minutes, in case one is lost, but ends a wait only once.

        Otherwise no poll of a worker that was told to stop something would wait until those minutes are over.
        """
        known = self._told_stops.pop(worker_id, frozenset())
        if len(self._told_stops) >= MAX_TOLD:
            self._told_stops.clear()
        if stops:
            self._told_stops[worker_id] = frozenset(stops)
        return not known.issuperset(stops)

    async def _listen(self, duty: Duty) -> None:
        """Ends with the subscription, by an error of the store."""
        listener = self._open_listener()
        try:
            async with subscribed(listener, self._sources, self._hear) as ending:
                await self._survey()
                self._subscribed.set()
                duty.succeeded()
                with duty.waiting():
                    await ending
        finally:
            with contextlib.suppress(QueueError), store_errors():
                await listener.aclose()

    def _hear(self, channel: str, message: str) -> None:
        """`<lanes version> <lane>:<ready> … worker:<id> due:<milliseconds> look:1`, each part optional.

        A part that cannot be read is a later version's: whom it is for, a look finds.
        """
        version, *parts = message.split(" ")
        source, unknown = self._sources[channel], list[tuple[str, int]]()
        for part in parts:
            subject, _, value = part.partition(":")
            if subject == "worker":
                self._room.wake_worker(value)
            elif not value.isdecimal() or not (subject.isdecimal() or subject in ("due", "look")):
                self._should_look.set()
            elif subject == "due":
                self._wake_one_in(int(value) / 1000)
            elif subject == "look":
                self._room.wake_looking()
                self._should_look.set()
            elif (signature := source.known_signature(version, subject)) is not None:
                self._room.wake_for(signature, int(value))
            else:
                unknown.append((subject, int(value)))
        if unknown:
            self._beside(self._hear_of_new(source, version, unknown))

    async def _hear_of_new(self, source: WakeSource, version: str, ready: Sequence[tuple[str, int]]) -> None:
        """Of lanes whose names have to be read first. One after the other: the first reads those of all."""
        try:
            for lane, count in ready:
                self._room.wake_for(await source.signature(version, lane), count)
        except QueueError:
            self._should_look.set()
        except Exception:
            log.exception("new lane not looked up: the next look finds whom it is for")
            self._should_look.set()

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        """The loop itself does not keep what it runs."""
        job = asyncio.create_task(work)
        self._learning.add(job)
        job.add_done_callback(self._learning.discard)

    async def _survey_while_waited_for(self, duty: Duty) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._should_look.wait(), SURVEY_SECONDS)
            self._should_look.clear()
            began = time.perf_counter()
            failure = await self._survey() if self._room.sleeping_count else None
            if failure is None:
                duty.succeeded()
            else:
                duty.failed(failure)
            gap = GAP_PER_SURVEY * (time.perf_counter() - began)
            await asyncio.sleep(min(max(gap, MIN_SURVEY_GAP_SECONDS), MAX_SURVEY_GAP_SECONDS))

    async def _survey(self) -> QueueError | None:
        """One partition that cannot be looked at is no reason not to look at the others: returns why, of the first."""
        most = max(len(self._room), 1)
        told = await asyncio.gather(*(each.survey(most) for each in self._sources.values()), return_exceptions=True)
        surveys = {number: each for number, each in enumerate(told) if isinstance(each, Survey)}
        for survey in await self._within_limits(surveys) if self._within_limits else surveys.values():
            for signature, count in survey.ready:
                self._room.wake_for(signature, count)
            self._note_due(survey.next_at_ms, survey.now_ms)
        failures = [each for each in told if isinstance(each, BaseException)]
        known = [each for each in failures if isinstance(each, QueueError)]
        if len(failures) == len(told) or len(known) < len(failures):
            raise failures[0]
        return known[0] if known else None

    def _note_due(self, due_ms: int | None, now_ms: int) -> None:
        if due_ms is not None:
            self._wake_one_in(max(due_ms - now_ms, 0) / 1000)

    def _wake_one_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._due_timer is not None:
            if self._due_at <= at:
                return
            self._due_timer.cancel()
        # The time is kept here: what uvloop returns for a time that is now knows none.
        self._due_timer, self._due_at = loop.call_at(at, self._wake_due), at

    def _wake_due(self) -> None:
        """One poll suffices for what falls due: its claim recovers it and tells the others about the rest.

        A limit that refills or a pause that ends is told by nobody: a look finds whom it concerns, and what comes next.
        """
        # Not to be told by the clock: uvloop may call up to a millisecond before the time.
        self._due_timer = None
        self._room.wake_one()
        self._should_look.set()


def _seconds_to_trial(got: Claim) -> float:
    ends = [each.until_ms for each in got.held_back if each.until_ms is not None]
    return max(min(ends) - got.now_ms, 1) / 1000 if ends else float("inf")


async def _claim_or_hand_back(
    claim: Callable[[], Awaitable[Claim]],
    hand_back: Callable[[Claim], Awaitable[object]],
) -> Claim:
    """A claim must not be torn down half-way: the store may have answered what nobody would then hear."""
    running = asyncio.ensure_future(claim())
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        with contextlib.suppress(QueueError):
            got = await running
            if got.tasks:
                await hand_back(got)
        raise
