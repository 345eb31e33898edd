"""Statistics, pauses and limits of the queue, and its workers as operators see them."""

from datetime import datetime
from typing import Any

import msgspec


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Ended tasks by their final state, without purged tasks."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    dead_letter: int = 0
    since: datetime | None = None
    """Start of the counts; `None` where the counts were verified against history and are complete."""


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting tasks, ready or hidden, and counts of ended tasks."""

    total_depth: int = 0
    by_priority: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    by_type: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    by_state: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    by_type_and_state: dict[str, dict[str, int]] = msgspec.field(default_factory=dict[str, dict[str, int]])
    totals: Totals = Totals()
    oldest_age_by_priority: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    oldest_age_seconds: float = 0.0
    p50_age_seconds: float = 0.0
    p95_age_seconds: float = 0.0


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    active: int = 0
    draining: int = 0
    unhealthy: int = 0
    dead: int = 0
    total_capacity: int = 0
    used_capacity: int = 0
    open_circuits: int = 0
    open_circuits_by_type: dict[str, int] = msgspec.field(default_factory=dict[str, int])


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    completed_last_minute: int = 0
    failed_last_minute: int = 0
    avg_task_duration_seconds: float | None = None


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Automatic recoveries in the last hour."""

    assignment_timeouts_last_hour: int = 0
    execution_timeouts_last_hour: int = 0
    visibility_timeouts_last_hour: int = 0
    health_probe_failures_last_hour: int = 0
    worker_losses_last_hour: int = 0
    retries_last_hour: int = 0
    dead_letters_last_hour: int = 0


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    queue: Depth = Depth()
    workers: Fleet = Fleet()
    throughput: Throughput = Throughput()
    recovery_stats: Recovery = Recovery()
    dead_letters: int = 0
    outbox_length: int = 0
    """Transitions that are not yet in history."""
    due: int = 0


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    paused: bool


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """Pause and limits of one type or, without a type, of the whole queue."""

    task_type: str | None = None
    paused: bool = False
    reason: str | None = None
    paused_by: str | None = None
    resume_at: datetime | None = None
    tasks_per_second: float = 0
    """0 for no limit."""
    max_executing: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    limits: tuple[Limit, ...] = ()


class BlockedType(msgspec.Struct, frozen=True, kw_only=True):
    """A task type whose circuit is open: the worker gets none of it, or a few as a trial."""

    task_type: str | None = None
    """`None` for all types together."""
    until: datetime | None = None
    """`None` during a trial."""
    reason: str = ""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's registration and present status."""

    worker_id: str
    status: str
    since: datetime | None = None
    """Start of the present status."""
    reason: str | None = None
    """Why it gets no new tasks, in one word; `None` while it is active."""
    reason_detail: str | None = None
    name: str = ""
    task_types: tuple[str, ...] | None = None
    """None for all types."""
    capabilities: tuple[str, ...] = ()
    capacity: int = 0
    held: int = 0
    """Tasks it holds, counted by the service."""
    current_load: int | None = None
    """Running tasks in its last heartbeat; `None` before the first."""
    current_tasks: tuple[str, ...] = ()
    """Ids of held tasks: all where one worker is read, some in a list."""
    health_failures: int = 0
    """Failed health probes in a row."""
    version: str = ""
    host: str = ""
    health_port: int | None = None
    registered_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    heartbeat_due_at: datetime | None = None
    died_at: datetime | None = None
    circuit: str = "closed"
    """`open` while it gets no tasks of the types in `blocked_types`; `trial` while its next results decide."""
    circuit_open_until: datetime | None = None
    blocked_types: tuple[BlockedType, ...] = ()
    health: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    workers: tuple[WorkerInfo, ...]
    next_cursor: str | None = None


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The worker gets no new tasks."""

    worker_id: str
    status: str = "draining"
