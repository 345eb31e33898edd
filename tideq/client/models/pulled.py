"""Tasks taken by a pull queue, the replies of the worker protocol, and the outcomes of marking many tasks."""

import contextlib
import functools
from collections.abc import Generator
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from tideq.client.encoding import decode
from tideq.client.errors import NotAllMarked, Problem, TideqError


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    heartbeat_interval_ms: int = 30_000


class PulledTask(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A task that is yours until its visibility timeout."""

    task_id: str
    task_type: str
    raw_parameters: msgspec.Raw = msgspec.field(name="parameters")
    lease: str
    attempt: int = 1
    """Number of claims."""
    retry_count: int = 0
    """Earlier executions that failed or timed out."""
    losses: int = 0
    """Earlier executions whose worker died."""
    timeout_seconds: float = 0.0
    status: str = "assigned"
    """At the time of the claim."""
    visible_at: datetime
    """Time of its return to the queue, unless it is marked or extended before."""
    raw_trace_id: str | None = msgspec.field(default=None, name="trace_id")
    """None from an older service."""
    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None

    @property
    def trace_id(self) -> str:
        """Id of the trace the task was submitted in, else the digits of the task id."""
        return self.raw_trace_id or self.task_id.replace("-", "")

    @functools.cached_property
    def parameters(self) -> Any:
        return decode(self.raw_parameters)

    @property
    def tries(self) -> int:
        """Earlier executions."""
        return self.retry_count + self.losses


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[PulledTask, ...] = ()


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    visible_at: datetime | None = None
    status: str | None = None
    """The new state after a result."""


class ReportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one report of many."""

    task_id: str
    ok: bool
    status: str = ""
    """The new state after a failed attempt."""
    problem: Problem = Problem()


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    outcomes: tuple[ReportOutcome, ...] = ()


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    cancel: tuple[str, ...] = ()


class Deregistered(msgspec.Struct, frozen=True, kw_only=True):
    released: int = 0


T = TypeVar("T")


class Marks(Generic[T]):
    def __init__(self) -> None:
        self._done: dict[str, T] = {}
        self._refused: dict[str, TideqError] = {}

    def note(self, task_id: str, outcome: T) -> None:
        self._done[task_id] = outcome

    def refuse(self, task_id: str, error: TideqError) -> None:
        self._refused[task_id] = error

    @contextlib.contextmanager
    def collecting(self, task_id: str) -> Generator[None]:
        """Collects an error raised inside as the refusal of this task."""
        try:
            yield
        except TideqError as error:
            self.refuse(task_id, error)

    def all(self) -> tuple[T, ...]:
        """Returns the outcomes in order. Raises NotAllMarked with all refusals."""
        if self._refused:
            raise NotAllMarked(len(self._done) + len(self._refused), self._refused)
        return tuple(self._done.values())
