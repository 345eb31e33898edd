"""The state of the view: the selected table, sort order, scroll position and open question. Pure."""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from tideq.cli.circuits import is_blocked_from
from tideq.cli.top_view.readings import ReadFailure, Snapshot
from tideq.client import WorkerInfo

Table = Literal["workers", "types"]
Action = Literal["quit", "pause", "resume", "refresh"]
TREND_LENGTH = 120


class TypeRow(NamedTuple):
    task_type: str
    waiting: int
    worker_count: int | None
    """Active workers that serve it; None where the access key may not read them."""
    restrictions: str
    """Its pause, its limits, and how many workers are blocked from it."""


Column = tuple[str, Callable[[Any], Any], bool]
"""Title, sort key, and whether the largest come first."""

COLUMNS: dict[Table, tuple[Column, ...]] = {
    "workers": (
        ("held", lambda worker: worker.held, True),
        ("worker", lambda worker: worker.worker_id, False),
        ("status", lambda worker: worker.status, False),
        ("slots", lambda worker: worker.capacity, True),
        ("heartbeat", lambda worker: -worker.last_heartbeat_at.timestamp() if worker.last_heartbeat_at else 0, True),
    ),
    "types": (
        ("waiting", lambda row: row.waiting, True),
        ("type", lambda row: row.task_type, False),
        ("workers", lambda row: row.worker_count or 0, False),
    ),
}


class View(msgspec.Struct):
    reading: Snapshot | None = None
    failure: ReadFailure | None = None
    """The first failure since the last reading, with the latest error."""
    trend: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=TREND_LENGTH))
    """Completions a second, newest last."""
    table: Table = "workers"
    sorts: dict[Table, int] = msgspec.field(default_factory=lambda: {"workers": 0, "types": 0})
    is_reversed: bool = False
    scrolls: dict[Table, int] = msgspec.field(default_factory=lambda: {"workers": 0, "types": 0})
    question: Action | None = None
    """The action that waits for a `y`."""
    message: str = ""

    def take(self, reading: Snapshot | ReadFailure) -> None:
        """A failure keeps the last reading on the screen."""
        if isinstance(reading, ReadFailure):
            self.failure = self.failure or reading
            self.failure = ReadFailure(self.failure.at, reading.error)
            return
        self.reading, self.failure = reading, None
        self.trend.append(reading.stats.throughput.completed_last_minute / 60)

    def handle_key(self, key: str) -> Action | None:
        """Updates the view; returns the action to perform, if the key calls for one."""
        if self.question is not None:
            action, self.question = self.question, None
            return action if key in ("y", "Y") else None
        self.message = ""
        if key in ("q", "Q", "escape"):
            return "quit"
        if key == "p":
            self._confirm_pause()
        elif key == "tab":
            self.table = "types" if self.table == "workers" else "workers"
        elif key in ("left", "right"):
            step = 1 if key == "right" else -1
            self.sorts[self.table] = (self.sorts[self.table] + step) % len(COLUMNS[self.table])
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key in ("up", "down"):
            self.scrolls[self.table] = max(self.scrolls[self.table] + (1 if key == "down" else -1), 0)
        return "refresh" if key == " " else None

    def _confirm_pause(self) -> None:
        if self.reading is not None and self.reading.limits is None:
            self.message = "this access key may not pause the queue"
        elif self.reading is not None:
            self.question = "resume" if self.reading.pause else "pause"

    def workers(self) -> list[WorkerInfo]:
        return self._sorted("workers", list((self.reading and self.reading.workers) or ()))

    def types(self) -> list[TypeRow]:
        return self._sorted("types", type_rows(self.reading) if self.reading else [])

    def _sorted(self, table: Table, rows: list[Any]) -> list[Any]:
        _, key, is_descending = COLUMNS[table][self.sorts[table]]
        is_reversed = self.is_reversed and self.table == table
        ordered = sorted(rows, key=key, reverse=is_descending != is_reversed)
        self.scrolls[table] = min(self.scrolls[table], max(len(ordered) - 1, 0))
        return ordered[self.scrolls[table] :]


def type_rows(reading: Snapshot) -> list[TypeRow]:
    """Types that have waiting tasks, active workers, or a pause or limit."""
    waiting = reading.stats.queue.by_type
    active = [worker for worker in reading.workers or () if worker.status == "active"]
    limited = {limit.task_type: _limits_text(limit) for limit in reading.limits or () if limit.task_type}
    served = {task_type for worker in active for task_type in worker.task_types or ()}
    return [
        TypeRow(
            task_type,
            waiting.get(task_type, 0),
            None if reading.workers is None else len(serving),
            ", ".join(filter(None, (limited.get(task_type), _blocked_text(task_type, serving)))),
        )
        for task_type in sorted({*waiting, *limited, *served})
        for serving in [[worker for worker in active if serves(worker, task_type)]]
    ]


def serves(worker: WorkerInfo, task_type: str) -> bool:
    return worker.task_types is None or task_type in worker.task_types


def _blocked_text(task_type: str, serving: list[WorkerInfo]) -> str:
    count = sum(is_blocked_from(worker, task_type) for worker in serving)
    return f"{count} of {len(serving)} workers blocked" if count else ""


def _limits_text(limit: Any) -> str:
    rules = [f"{limit.tasks_per_second:g}/s"] if limit.tasks_per_second else []
    rules += [f"{limit.max_executing} at once"] if limit.max_executing is not None else []
    return ", ".join((["paused"] if limit.paused else []) + rules)
