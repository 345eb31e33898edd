"""Wakes waiting polls when tasks become ready, without a claim per poll and second.

One subscription a process receives notifications of ready tasks and wakes as many polls as there are tasks for.
Notifications may be lost, so while polls wait, one scan a second reads the ready lanes for all of them. The scan also
returns when the next hidden task or silent worker falls due; one poll is woken then to recover it. A waiting poll holds
no connection.

All processes receive the same notification and each wakes its own polls. A poll that finds nothing keeps its place.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from tideq.queue_core.background import cancel_and_wait
from tideq.queue_core.duties import Duties, Duty
from tideq.queue_core.errors import QueueError
from tideq.queue_core.polls.ready_lanes import ReadyLanes, ReadyScan
from tideq.queue_core.polls.waiting_polls import WaitingPoll, WaitingPolls
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.store_client import subscribed
from tideq.queue_core.task import Claim, Stop

SCAN_SECONDS = 1.0
MIN_SCAN_GAP_SECONDS, MAX_SCAN_GAP_SECONDS = 0.01, 0.2
GAP_PER_SCAN = 20
"""Pause after a scan as a multiple of its duration: a scan of thousands of lanes takes milliseconds."""
MAX_SENT_STOPS = 10_000

log = structlog.get_logger(__name__)


class PollWakeups:
    """Use as an async context manager; leaving it answers every waiting poll."""

    def __init__(
        self,
        sources: Sequence[ReadyLanes],
        open_listener: Callable[[], Any],
        within_limits: Callable[[Mapping[int, ReadyScan]], Awaitable[Sequence[ReadyScan]]] | None = None,
        duties: Duties | None = None,
    ) -> None:
        """`within_limits` removes from the scans of several partitions the tasks that shared limits block."""
        self._within_limits = within_limits
        self._duties = duties or Duties()
        self._sources = {source.channel: source for source in sources}
        self._open_listener = open_listener
        self._polls = WaitingPolls()
        self._due_timer: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._jobs: list[asyncio.Task[None]] = []
        self._is_open = False
        self._scan_requested = asyncio.Event()
        self._sent_stops: dict[str, frozenset[Stop]] = {}
        self._subscribed = asyncio.Event()
        self._lookups: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "PollWakeups":
        self._is_open = True
        self._jobs = [
            self._duties.start("wake-up subscription", self._listen),
            self._duties.start("ready scan", self._scan_while_polls_wait),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self._duties.stop(*self._jobs)
        await cancel_and_wait(*self._lookups)

    def close(self) -> None:
        """End all polls."""
        self._is_open = False
        self._polls.end_all()
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._due_timer = None

    @property
    def sleeping_count(self) -> int:
        """Polls that claimed nothing and wait."""
        return self._polls.sleeping_count

    async def wait_until_subscribed(self) -> None:
        """Returns once the process is subscribed."""
        await self._subscribed.wait()

    async def poll(
        self,
        waiting: WaitingPoll,
        claim: Callable[[], Awaitable[Claim]],
        wait_seconds: float,
    ) -> Claim:
        """Returns the first claim with tasks, new stops or a drain, or the last one when the time is up, on `close` and
        once the poll has ended. A claim under way is not interrupted, unless this coroutine is cancelled.
        """
        deadline = asyncio.get_running_loop().time() + wait_seconds
        self._polls.add(waiting)
        if not self._is_open:
            waiting.end()
        try:
            while True:
                waiting.sleep_again()
                got = await claim()
                left = deadline - asyncio.get_running_loop().time()
                has_new_stops = self._has_new_stops(waiting.worker_id, got.stops)
                if got.tasks or has_new_stops or got.should_drain or left <= 0 or waiting.has_ended:
                    return got
                waiting.profile, waiting.is_eligible = got.profile, got.worker_status == "active"
                waiting.circuits = {each.task_type: each for each in got.circuits}
                self._schedule_wakeup(got.retry_at_ms, got.now_ms)
                # No notification announces the end of this worker's circuits, so the poll wakes up by itself.
                pause = min(left, _seconds_until_trial(got))
                is_over = not await waiting.wait(pause) and pause == left
                if is_over or waiting.has_ended:
                    return got
        finally:
            self._polls.remove(waiting)
            if waiting.is_woken:
                # The unused wake-up may be for another poll: a scan passes it on.
                self._scan_requested.set()

    def _has_new_stops(self, worker_id: str, stops: tuple[Stop, ...]) -> bool:
        """Whether a stop was not returned to this worker before; only new stops end a wait.

        Every claim repeats its worker's stops for minutes, in case a reply is lost; no poll would wait in that time.
        """
        sent = self._sent_stops.pop(worker_id, frozenset())
        if len(self._sent_stops) >= MAX_SENT_STOPS:
            self._sent_stops.clear()
        if stops:
            self._sent_stops[worker_id] = frozenset(stops)
        return not sent.issuperset(stops)

    async def _listen(self, duty: Duty) -> None:
        """Runs until the subscription ends with an error of the store."""
        listener = self._open_listener()
        try:
            async with subscribed(listener, self._sources, self._on_message) as ending:
                await self._scan()
                self._subscribed.set()
                duty.succeeded()
                with duty.waiting():
                    await ending
        finally:
            with contextlib.suppress(QueueError), store_errors():
                await listener.aclose()

    def _on_message(self, channel: str, message: str) -> None:
        """Handle `<lanes version> <lane>:<ready> … worker:<id> due:<milliseconds> look:1`, each part optional.

        A part of a later version that cannot be parsed causes a scan.
        """
        version, *parts = message.split(" ")
        source, uncached = self._sources[channel], list[tuple[str, int]]()
        for part in parts:
            subject, _, value = part.partition(":")
            if subject == "worker":
                self._polls.wake_worker(value)
            elif not value.isdecimal() or not (subject.isdecimal() or subject in ("due", "look")):
                self._scan_requested.set()
            elif subject == "due":
                self._wake_one_after(int(value) / 1000)
            elif subject == "look":
                self._polls.wake_claiming()
                self._scan_requested.set()
            elif (signature := source.cached_signature(version, subject)) is not None:
                self._polls.wake_for(signature, int(value))
            else:
                uncached.append((subject, int(value)))
        if uncached:
            self._run_in_background(self._on_new_tasks(source, version, uncached))

    async def _on_new_tasks(self, source: ReadyLanes, version: str, ready: Sequence[tuple[str, int]]) -> None:
        """Wake polls for lanes whose signatures must first be read. In sequence: the first read fetches all of them."""
        try:
            for lane, count in ready:
                self._polls.wake_for(await source.signature(version, lane), count)
        except QueueError:
            self._scan_requested.set()
        except Exception:
            log.exception("wake-up for a new lane failed, the next scan finds its polls")
            self._scan_requested.set()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task and keep a reference to it: the event loop keeps only a weak one."""
        job = asyncio.create_task(work)
        self._lookups.add(job)
        job.add_done_callback(self._lookups.discard)

    async def _scan_while_polls_wait(self, duty: Duty) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._scan_requested.wait(), SCAN_SECONDS)
            self._scan_requested.clear()
            began = time.perf_counter()
            failure = await self._scan() if self._polls.sleeping_count else None
            if failure is None:
                duty.succeeded()
            else:
                duty.failed(failure)
            gap = GAP_PER_SCAN * (time.perf_counter() - began)
            await asyncio.sleep(min(max(gap, MIN_SCAN_GAP_SECONDS), MAX_SCAN_GAP_SECONDS))

    async def _scan(self) -> QueueError | None:
        """Scan all partitions, also if some fail; returns the first failure. Raises it if all failed."""
        most = max(len(self._polls), 1)
        results = await asyncio.gather(*(each.scan(most) for each in self._sources.values()), return_exceptions=True)
        scans = {number: each for number, each in enumerate(results) if isinstance(each, ReadyScan)}
        for scan in await self._within_limits(scans) if self._within_limits else scans.values():
            for signature, count in scan.ready:
                self._polls.wake_for(signature, count)
            self._schedule_wakeup(scan.next_at_ms, scan.now_ms)
        failures = [each for each in results if isinstance(each, BaseException)]
        queue_errors = [each for each in failures if isinstance(each, QueueError)]
        if len(failures) == len(results) or len(queue_errors) < len(failures):
            raise failures[0]
        return queue_errors[0] if queue_errors else None

    def _schedule_wakeup(self, due_ms: int | None, now_ms: int) -> None:
        if due_ms is not None:
            self._wake_one_after(max(due_ms - now_ms, 0) / 1000)

    def _wake_one_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + seconds
        if self._due_timer is not None:
            if self._due_at <= at:
                return
            self._due_timer.cancel()
        # The due time is kept separately: uvloop's handle for a time that has come has no `when`.
        self._due_timer, self._due_at = loop.call_at(at, self._wake_due), at

    def _wake_due(self) -> None:
        """Wake one poll, whose claim recovers the due tasks and notifies other polls of the rest.

        Refilled limits and ended pauses cause no notification, so a scan follows, which also finds the next due time.
        """
        # No comparison with the clock here: uvloop may call up to a millisecond early.
        self._due_timer = None
        self._polls.wake_one()
        self._scan_requested.set()


def _seconds_until_trial(got: Claim) -> float:
    ends = [each.until_ms for each in got.circuits if each.until_ms is not None]
    return max(min(ends) - got.now_ms, 1) / 1000 if ends else float("inf")
