"""Responses for the dashboard: the queue picture, trends, the audit log, the caller's session."""

from typing import Annotated

from tideq.api.schemas.base import Count, Instant, ResponseSchema, TaskId, TaskType, about

Percentile = Annotated[float | None, about("Seconds; null if no task ended.", 1.4)]


class ShownTaskOut(ResponseSchema, kw_only=True):
    """One task of the picture."""

    task_id: TaskId
    lane: Annotated[int, about("Number of its lane.", 0)]
    status: Annotated[str, about("State of the task.", "queued")]
    reason: Annotated[str, about("Reason of the state.", "submitted")]
    priority: Annotated[str, about("Priority level.", "high")]
    queue_score: Annotated[float | None, about("Score of a ready task: lower runs first.", -12.4)]
    returns_at: Annotated[Instant | None, about("End of a hidden task's hidden time.")]


class LaneOut(ResponseSchema, kw_only=True):
    """One lane: ready tasks of one type that need the same capabilities, and the first of them."""

    lane: Annotated[int, about("Number of the lane.", 0)]
    task_type: TaskType
    required_capabilities: Annotated[list[str], about("Capabilities that a worker needs.", ["gpu"])]
    ready_count: Annotated[Count, about("Ready tasks.", 120)]
    first: list[ShownTaskOut]


class ZoneOut(ResponseSchema, kw_only=True):
    """Hidden tasks that return within a span of time, and the first of them."""

    until_seconds: Annotated[float | None, about("End of the span, counted from now; null for no end.", 60.0)]
    count: Annotated[Count, about("Tasks in the span.", 8)]
    first: list[ShownTaskOut]


class TideOut(ResponseSchema, kw_only=True):
    """The sorted set of the queue."""

    now: Annotated[Instant, about("The store's clock.")]
    ready_count: Annotated[Count, about("Ready tasks.", 120)]
    lane_count: Annotated[Count, about("Lanes with ready tasks, also those not listed.", 3)]
    lanes: Annotated[list[LaneOut], about("The most urgent first, then lanes with hidden tasks only.")]
    zones: Annotated[list[ZoneOut], about("The earliest first.")]


class TrendOut(ResponseSchema, kw_only=True):
    """One step of time."""

    at: Annotated[Instant, about("Start of the step.")]
    completed: Annotated[Count, about("Results received.", 42)]
    failed: Annotated[Count, about("Errors received.", 1)]
    wait_p50_seconds: Percentile
    wait_p95_seconds: Percentile
    run_p50_seconds: Percentile
    run_p95_seconds: Percentile


class TrendsOut(ResponseSchema, kw_only=True):
    """Recent completions, failures and durations. Waits and runs are those of the newest thousand completed tasks."""

    step_seconds: Annotated[int, about("Length of a step.", 10)]
    history_lag_seconds: Annotated[float | None, about("Replication lag of history; null if unknown.", 0.0)]
    steps: list[TrendOut]


class NoteOut(ResponseSchema, kw_only=True):
    """One entry of the audit log."""

    at: Instant
    by: Annotated[str, about("Name of the key.", "ops")]
    action: Annotated[str, about("The action.", "pause")]
    target: Annotated[str, about("Task type, task or worker concerned; empty for the whole queue.", "resize")]
    details: Annotated[str, about("Details in words.", "upstream is down")]


class AuditOut(ResponseSchema, kw_only=True):
    """Entries of the audit log, the latest first."""

    notes: list[NoteOut]


class WhoamiOut(ResponseSchema, kw_only=True):
    """The caller, and the service's configuration."""

    name: Annotated[str, about("Name of the key.", "ops")]
    role: Annotated[str, about("Role of the key.", "viewer")]
    auth_disabled: Annotated[bool, about("Whether authentication is off.", False)]
    has_history: Annotated[bool, about("Whether tasks can be listed and searched.", True)]
    version: Annotated[str, about("Version of the service.", "0.1.0")]
    queue: Annotated[str, about("Name of the queue.", "default")]
    priorities: Annotated[list[str], about("The priority levels, the most urgent first.", ["high", "medium", "low"])]
    default_priority: Annotated[str, about("Priority of a task that names none.", "medium")]
    trace_url_template: Annotated[
        str | None, about("Address of a trace, with `{trace_id}` to be replaced.", "https://jaeger/trace/{trace_id}")
    ]
