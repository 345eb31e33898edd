"""What a worker has to say about its tasks and has not been heard saying yet."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tideq.workers.runtime.service_api import ReportOutcome

MAX_ROWS = 500
MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Of one request, well below what the service takes; one result alone may be larger."""


class HeldTask(msgspec.Struct, frozen=True):
    task_id: str
    lease: str


class Start(msgspec.Struct, frozen=True):
    held: HeldTask
    outcome: "asyncio.Future[ReportOutcome]"

    @property
    def lease(self) -> str:
        return self.held.lease

    def answer(self, outcome: ReportOutcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Result(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    task_id: str
    lease: str
    status: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    execution_duration_seconds: float | None = None

    @property
    def size(self) -> int:
        content = self.result if self.error is msgspec.UNSET else self.error
        return memoryview(content).nbytes if isinstance(content, msgspec.Raw) else 0


class ProgressReport(msgspec.Struct, frozen=True):
    task_id: str
    lease: str
    progress_percent: float
    status_message: str
    sequence: int


class Extension(msgspec.Struct, frozen=True):
    task_id: str
    lease: str
    seconds: float


class ReportBatch(msgspec.Struct, eq=False):
    """What one request says, in the order its outcomes come back."""

    starts: list[Start]
    progress: list[ProgressReport]
    extends: list[Extension]
    results: list[Result]
    releases: list[HeldTask]

    def parts(self) -> dict[str, Sequence[Any]]:
        said: dict[str, Sequence[Any]] = {
            "starts": [start.held for start in self.starts],
            "progress": self.progress,
            "extends": self.extends,
            "results": self.results,
            "releases": self.releases,
        }
        return {name: rows for name, rows in said.items() if rows}

    def rest(self) -> list[ProgressReport | Extension | Result | HeldTask]:
        """All but the starts."""
        return [*self.progress, *self.extends, *self.results, *self.releases]


class ReportBuffer:
    """Of one worker id. What a handler says comes from its own thread; everything else from the loop.

    `on_mail` is called on the loop whenever there is something new. Of what a handler says only the latest is kept:
    a service that is away for long costs no memory.
    """

    def __init__(self, worker_id: str, on_mail: Callable[["ReportBuffer"], None]) -> None:
        self.worker_id = worker_id
        self._loop = asyncio.get_running_loop()
        self._on_mail = on_mail
        self._is_called = False
        self._sequence = itertools.count(1)
        self._starts: deque[Start] = deque()
        self._progress: dict[str, ProgressReport] = {}
        self._extends: dict[str, Extension] = {}
        self._results: deque[Result] = deque()
        self._releases: deque[HeldTask] = deque()

    @property
    def unsent_count(self) -> int:
        return len(self._results) + len(self._starts) + len(self._releases)

    @property
    def is_empty(self) -> bool:
        return not (self._results or self._starts or self._progress or self._extends or self._releases)

    async def start(self, held: Sequence[HeldTask]) -> list[ReportOutcome]:
        """Whether each may begin; asked again of one that has begun, whether it is still this worker's."""
        starts = [Start(each, self._loop.create_future()) for each in held]
        self._starts.extend(starts)
        self._on_mail(self)
        return [await start.outcome for start in starts]

    def finish(self, results: Sequence[Result]) -> None:
        self._results.extend(results)
        self._on_mail(self)

    def release(self, held: Sequence[HeldTask]) -> None:
        self._releases.extend(held)
        self._on_mail(self)

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None:
        self._progress[lease] = ProgressReport(task_id, lease, percent, message, next(self._sequence))
        self._call_loop()

    def extend(self, task_id: str, lease: str, seconds: float) -> None:
        known = self._extends.get(lease)
        self._extends[lease] = Extension(task_id, lease, max(seconds, known.seconds if known else 0.0))
        self._call_loop()

    def take(self) -> ReportBatch:
        return ReportBatch(
            starts=_some(self._starts),
            progress=[self._progress.pop(lease) for lease in list(self._progress)[:MAX_ROWS]],
            extends=[self._extends.pop(lease) for lease in list(self._extends)[:MAX_ROWS]],
            results=self._some_results(),
            releases=_some(self._releases),
        )

    def put_back(self, bundle: ReportBatch) -> None:
        """In their old order; what a handler said since stands."""
        self._starts.extendleft(reversed(bundle.starts))
        self._results.extendleft(reversed(bundle.results))
        self._releases.extendleft(reversed(bundle.releases))
        for progress in bundle.progress:
            self._progress.setdefault(progress.lease, progress)
        for extension in bundle.extends:
            self._extends.setdefault(extension.lease, extension)

    def _some_results(self) -> list[Result]:
        results, room = list[Result](), MAX_RESULT_BYTES
        while self._results and len(results) < MAX_ROWS and (room > 0 or not results):
            results.append(self._results.popleft())
            room -= results[-1].size
        return results

    def _call_loop(self) -> None:
        """Once for many: a handler may tell its progress thousands of times a second."""
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._hear_call)

    def _hear_call(self) -> None:
        """The flag first: what is said from here on calls again."""
        self._is_called = False
        self._on_mail(self)


def _some(rows: deque[Any]) -> list[Any]:
    return [rows.popleft() for _ in range(min(len(rows), MAX_ROWS))]
