"""The queue as a whole."""

from datetime import datetime

import msgspec


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that ended, by how they ended last, less what was purged."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    dead_letter: int = 0
    since: datetime | None = None
    """Since when they are counted; `None` where they are compared with history, which has all of them."""


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """What waits, ready or hidden, and how much has ended."""

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
    """What came back by itself in the last hour."""

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
    """Transitions history has yet to take."""
    due: int = 0


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    paused: bool


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force for one type or, with no type, for the whole queue."""

    task_type: str | None = None
    paused: bool = False
    reason: str | None = None
    paused_by: str | None = None
    resume_at: datetime | None = None
    tasks_per_second: float = 0
    """0 is no limit."""
    max_executing: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    limits: tuple[Limit, ...] = ()
