"""The reporter: starts, results, progress and the like, sent together in as few round trips as possible.

One request at a time is under way; what is said meanwhile goes with the next. A finished result is kept and sent again
until the service accepts or refuses it, however long that takes.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from tideq.workers.runtime.protocol import Answer, GivenTask, Outcome, Protocol, Refused, Unreachable

MAX_ROWS = 500
FIRST_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 5.0

log = structlog.get_logger("tideq.worker")


class Held(msgspec.Struct, frozen=True):
    task_id: str
    lease: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    task_id: str
    lease: str
    status: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    execution_duration_seconds: float | None = None


class Progress(msgspec.Struct, frozen=True):
    task_id: str
    lease: str
    progress_percent: float
    status_message: str
    sequence: int


class Extension(msgspec.Struct, frozen=True):
    task_id: str
    lease: str
    seconds: float


class Bundle(msgspec.Struct):
    """What one request says, in the order its outcomes come back."""

    starts: list[Held]
    progress: list[Progress]
    extends: list[Extension]
    results: list[Result]
    releases: list[Held]

    def parts(self) -> dict[str, Sequence[Any]]:
        return {name: rows for name, rows in msgspec.structs.asdict(self).items() if rows}


class Reporter:
    """`on_lost` hears of tasks that this worker no longer holds."""

    def __init__(self, protocol: Protocol, on_answer: Callable[[Answer], None], on_lost: Callable[[str], None]) -> None:
        self.worker_id = ""
        self._protocol = protocol
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._starts: deque[tuple[Held, asyncio.Future[Outcome]]] = deque()
        self._results: deque[Result] = deque()
        self._progress: dict[str, Progress] = {}
        self._extends: deque[Extension] = deque()
        self._releases: deque[Held] = deque()
        self._sequence = 0
        self._something_to_say = asyncio.Event()
        self._is_silent = asyncio.Event()
        self._is_silent.set()

    @property
    def unsent_count(self) -> int:
        return len(self._results) + len(self._starts) + len(self._releases)

    async def start(self, tasks: Sequence[GivenTask]) -> list[Outcome]:
        """Whether each may begin."""
        loop = asyncio.get_running_loop()
        waiting = [(Held(task.task_id, task.lease), loop.create_future()) for task in tasks]
        self._starts.extend(waiting)
        self._speak()
        return [await future for _, future in waiting]

    def finish(self, results: Sequence[Result]) -> None:
        self._results.extend(results)
        self._speak()

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None:
        """Only the latest matters."""
        self._sequence += 1
        self._progress[lease] = Progress(task_id, lease, percent, message, self._sequence)
        self._speak()

    def extend(self, task_id: str, lease: str, seconds: float) -> None:
        self._extends.append(Extension(task_id, lease, seconds))
        self._speak()

    def release(self, held: Sequence[Held]) -> None:
        self._releases.extend(held)
        self._speak()

    async def silent(self) -> None:
        """Returns once everything said so far has been accepted or refused."""
        await self._is_silent.wait()

    async def run(self) -> None:
        delay = FIRST_DELAY_SECONDS
        while True:
            await self._something_to_say.wait()
            bundle, starting = self._take()
            try:
                await self._send(bundle, starting)
                delay = FIRST_DELAY_SECONDS
            except Unreachable as error:
                self._put_back(bundle, starting)
                log.warning(
                    "service unreachable, keeping what is to be said", error=str(error), unsent=self.unsent_count
                )
                await asyncio.sleep(error.retry_after_seconds or delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, MAX_DELAY_SECONDS)
            self._rest_if_done()

    def _speak(self) -> None:
        self._is_silent.clear()
        self._something_to_say.set()

    def _rest_if_done(self) -> None:
        if not (self._starts or self._results or self._progress or self._extends or self._releases):
            self._something_to_say.clear()
            self._is_silent.set()

    def _take(self) -> tuple[Bundle, list[asyncio.Future[Outcome]]]:
        starts = [self._starts.popleft() for _ in range(min(len(self._starts), MAX_ROWS))]
        leases = list(self._progress)[:MAX_ROWS]
        bundle = Bundle(
            starts=[held for held, _ in starts],
            progress=[self._progress.pop(lease) for lease in leases],
            extends=_some(self._extends),
            results=_some(self._results),
            releases=_some(self._releases),
        )
        return bundle, [future for _, future in starts]

    def _put_back(self, bundle: Bundle, starting: list[asyncio.Future[Outcome]]) -> None:
        """In their old order; later progress of the same attempt stands."""
        self._starts.extendleft(reversed(list(zip(bundle.starts, starting, strict=True))))
        self._results.extendleft(reversed(bundle.results))
        self._extends.extendleft(reversed(bundle.extends))
        self._releases.extendleft(reversed(bundle.releases))
        for progress in bundle.progress:
            self._progress.setdefault(progress.lease, progress)

    async def _send(self, bundle: Bundle, starting: list[asyncio.Future[Outcome]]) -> None:
        parts = bundle.parts()
        if not parts:
            return
        try:
            answer = await self._protocol.sync(self.worker_id, **parts)
        except Refused as error:
            await self._send_one_by_one(bundle, starting, error)
            return
        self._hear(bundle, starting, answer.outcomes)
        self._on_answer(answer)

    def _hear(self, bundle: Bundle, starting: list[asyncio.Future[Outcome]], outcomes: list[Outcome]) -> None:
        for future, outcome in zip(starting, outcomes, strict=False):
            _resolve(future, outcome)
        for outcome in outcomes[len(starting) :]:
            if not outcome.ok:
                code = outcome.problem.code if outcome.problem else ""
                log.info("service refused a report", task_id=outcome.task_id, problem=code)
                self._on_lost(outcome.task_id)

    async def _send_one_by_one(self, bundle: Bundle, starting: list[asyncio.Future[Outcome]], error: Refused) -> None:
        """The service does not know this worker any more, or one report spoils the others: results still count."""
        log.warning("service refused a bundle of reports", error=str(error))
        for future, held in zip(starting, bundle.starts, strict=True):
            _resolve(future, Outcome(held.task_id, ok=False))
        for number, result in enumerate(bundle.results):
            try:
                await self._protocol.result(self.worker_id, result)
            except Refused as refused:
                log.warning("service refused a result", task_id=result.task_id, problem=str(refused))
            except Unreachable:
                self._results.extendleft(reversed(bundle.results[number:]))
                raise


def _some(rows: deque[Any]) -> list[Any]:
    return [rows.popleft() for _ in range(min(len(rows), MAX_ROWS))]


def _resolve(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
