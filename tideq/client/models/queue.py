"""Statistics, pauses and limits of the queue."""

from datetime import datetime

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
