"""Reports about tasks that the service has not accepted yet."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tideq.workers.runtime.service_api import RowOutcome

MAX_REPORTS = 500
MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Of one request, well below the service's limit; a single result may be larger."""


class HeldTask(msgspec.Struct, frozen=True):
    task_id: str
    lease: str


class Start(msgspec.Struct, frozen=True):
    held: HeldTask
    outcome: "asyncio.Future[RowOutcome]"

    @property
    def lease(self) -> str:
        return self.held.lease

    def resolve(self, outcome: RowOutcome) -> None:
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
    """The reports of one request, in the order of its outcomes."""

    starts: list[Start]
    progress: list[ProgressReport]
    extends: list[Extension]
    results: list[Result]
    releases: list[HeldTask]

    def parts(self) -> dict[str, Sequence[Any]]:
        parts: dict[str, Sequence[Any]] = {
            "starts": [start.held for start in self.starts],
            "progress": self.progress,
            "extends": self.extends,
            "results": self.results,
            "releases": self.releases,
        }
        return {name: rows for name, rows in parts.items() if rows}

    def rest(self) -> list[ProgressReport | Extension | Result | HeldTask]:
        return [*self.progress, *self.extends, *self.results, *self.releases]


class ReportBuffer:
    """The unsent reports of one worker id. `progress` and `extend` may be called from any thread, the rest on the loop.

    `on_change` is called on the loop for each new report. Of a handler's progress and extensions only the latest is
    kept, so that memory stays bounded while the service is away.
    """

    def __init__(self, worker_id: str, on_change: Callable[["ReportBuffer"], None]) -> None:
        self.worker_id = worker_id
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._is_scheduled = False
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

    async def start(self, held: Sequence[HeldTask]) -> list[RowOutcome]:
        """Outcome for each: ok if the task may run. For a running task: ok if its lease still holds."""
        starts = [Start(each, self._loop.create_future()) for each in held]
        self._starts.extend(starts)
        self._on_change(self)
        return [await start.outcome for start in starts]

    def finish(self, results: Sequence[Result]) -> None:
        self._results.extend(results)
        self._on_change(self)

    def release(self, held: Sequence[HeldTask]) -> None:
        self._releases.extend(held)
        self._on_change(self)

    def progress(self, task_id: str, lease: str, percent: float, message: str) -> None:
        self._progress[lease] = ProgressReport(task_id, lease, percent, message, next(self._sequence))
        self._call_loop()

    def extend(self, task_id: str, lease: str, seconds: float) -> None:
        pending = self._extends.get(lease)
        self._extends[lease] = Extension(task_id, lease, max(seconds, pending.seconds if pending else 0.0))
        self._call_loop()

    def take(self) -> ReportBatch:
        return ReportBatch(
            starts=_take_some(self._starts),
            progress=[self._progress.pop(lease) for lease in list(self._progress)[:MAX_REPORTS]],
            extends=[self._extends.pop(lease) for lease in list(self._extends)[:MAX_REPORTS]],
            results=self._take_results(),
            releases=_take_some(self._releases),
        )

    def put_back(self, batch: ReportBatch) -> None:
        """Restores the order. Newer progress and extensions are kept."""
        self._starts.extendleft(reversed(batch.starts))
        self._results.extendleft(reversed(batch.results))
        self._releases.extendleft(reversed(batch.releases))
        for progress in batch.progress:
            self._progress.setdefault(progress.lease, progress)
        for extension in batch.extends:
            self._extends.setdefault(extension.lease, extension)

    def _take_results(self) -> list[Result]:
        results, room = list[Result](), MAX_RESULT_BYTES
        while self._results and len(results) < MAX_REPORTS and (room > 0 or not results):
            results.append(self._results.popleft())
            room -= results[-1].size
        return results

    def _call_loop(self) -> None:
        """One call for many reports: a handler may report progress thousands of times a second."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._on_scheduled_call)

    def _on_scheduled_call(self) -> None:
        """Resets the flag first, so that a report made meanwhile schedules another call."""
        self._is_scheduled = False
        self._on_change(self)


def _take_some(rows: deque[Any]) -> list[Any]:
    return [rows.popleft() for _ in range(min(len(rows), MAX_REPORTS))]
