"""Tasks taken out of the queue, to be finished by whoever took them."""

import functools
from datetime import datetime
from typing import Any

import msgspec

from tideq.client.encoding import decode
from tideq.client.errors import Problem


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    heartbeat_interval_ms: int = 30_000


class PulledTask(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A task that is yours until its time is up."""

    task_id: str
    task_type: str
    raw_parameters: msgspec.Raw = msgspec.field(name="parameters")
    lease: str
    attempt: int = 1
    """Counts its claims."""
    retry_count: int = 0
    """Executions before that failed or took too long."""
    losses: int = 0
    """Executions before whose worker died."""
    timeout_seconds: float = 0.0
    status: str = "assigned"
    """As it was handed out."""
    visible_at: datetime
    """When it goes to another, unless something was said about it."""
    raw_trace_id: str | None = msgspec.field(default=None, name="trace_id")
    """Null where an older service knows of none."""
    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None

    @property
    def trace_id(self) -> str:
        """Of the trace that the task came with, or else its own: the digits of its id."""
        return self.raw_trace_id or self.task_id.replace("-", "")

    @functools.cached_property
    def parameters(self) -> Any:
        return decode(self.raw_parameters)

    @property
    def tries(self) -> int:
        """Executions it has behind it."""
        return self.retry_count + self.losses


class Polled(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[PulledTask, ...] = ()


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    visible_at: datetime | None = None
    status: str | None = None
    """Where a result led to."""


class ReportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one of many things that were said."""

    task_id: str
    ok: bool
    status: str = ""
    """Where a failed attempt led to."""
    problem: Problem = Problem()


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    outcomes: tuple[ReportOutcome, ...] = ()


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    cancel: tuple[str, ...] = ()


class Deregistered(msgspec.Struct, frozen=True, kw_only=True):
    released: int = 0
