"""What people look at: the sorted set as a picture, the last hour, who did what, who is asking."""

from typing import Annotated

from tideq.api.schemas.base import Count, Instant, ResponseSchema, TaskId, TaskType, about

Percentile = Annotated[float | None, about("Seconds; null where none ended.", 1.4)]


class ShownTaskOut(ResponseSchema, kw_only=True):
    """One task of the picture."""

    task_id: TaskId
    lane: Annotated[int, about("Its band.", 0)]
    status: Annotated[str, about("Where it is.", "queued")]
    reason: Annotated[str, about("Why it is there.", "submitted")]
    priority: Annotated[str, about("Its level.", "high")]
    queue_score: Annotated[float | None, about("Of a ready one: lower runs first.", -12.4)]
    returns_at: Annotated[Instant | None, about("Of a hidden one: until when it is.")]


class LaneOut(ResponseSchema, kw_only=True):
    """One band of the set: ready tasks of one type that need the same capabilities, and the first of them."""

    lane: Annotated[int, about("Its number.", 0)]
    task_type: TaskType
    required_capabilities: Annotated[list[str], about("What a worker must have.", ["gpu"])]
    ready_count: Annotated[Count, about("Tasks that could go now.", 120)]
    first: list[ShownTaskOut]


class ZoneOut(ResponseSchema, kw_only=True):
    """Hidden tasks that return within a span of time, and the first of them."""

    until_seconds: Annotated[float | None, about("Where the span ends, from now on; null has no end.", 60.0)]
    count: Annotated[Count, about("Tasks in it.", 8)]
    first: list[ShownTaskOut]


class TideOut(ResponseSchema, kw_only=True):
    """The one sorted set."""

    now: Annotated[Instant, about("By the store's clock.")]
    ready_count: Annotated[Count, about("Tasks that could go now.", 120)]
    lane_count: Annotated[Count, about("Lanes that hold something ready, also those not told.", 3)]
    lanes: Annotated[list[LaneOut], about("The most urgent first, then those of hidden tasks.")]
    zones: Annotated[list[ZoneOut], about("The soonest first.")]


class TrendOut(ResponseSchema, kw_only=True):
    """One step of time."""

    at: Annotated[Instant, about("When it begins.")]
    completed: Annotated[Count, about("Results delivered.", 42)]
    failed: Annotated[Count, about("Errors delivered.", 1)]
    wait_p50_seconds: Percentile
    wait_p95_seconds: Percentile
    run_p50_seconds: Percentile
    run_p95_seconds: Percentile


class TrendsOut(ResponseSchema, kw_only=True):
    """How it went lately. Waits and runs are those of the newest thousand completed tasks."""

    step_seconds: Annotated[int, about("How long a step is.", 10)]
    history_lag_seconds: Annotated[float | None, about("How far history is behind; null where it cannot be told.", 0.0)]
    steps: list[TrendOut]


class NoteOut(ResponseSchema, kw_only=True):
    """One thing somebody did."""

    at: Instant
    by: Annotated[str, about("Whose key it was.", "ops")]
    action: Annotated[str, about("What was done.", "pause")]
    target: Annotated[str, about("To what; empty for the whole queue.", "resize")]
    details: Annotated[str, about("In words.", "upstream is down")]


class AuditOut(ResponseSchema, kw_only=True):
    """The latest first."""

    notes: list[NoteOut]


class WhoamiOut(ResponseSchema, kw_only=True):
    """Who asks, and what there is to know before asking more."""

    name: Annotated[str, about("The key's name.", "ops")]
    role: Annotated[str, about("What the key may do.", "viewer")]
    is_open: Annotated[bool, about("No key is asked for.", False)]
    has_history: Annotated[bool, about("Whether tasks can be listed and searched.", True)]
    version: Annotated[str, about("Of the service.", "0.1.0")]
    queue: Annotated[str, about("Its name.", "default")]
    priorities: Annotated[list[str], about("The levels, the most urgent first.", ["high", "medium", "low"])]
    default_priority: Annotated[str, about("Of a task that names none.", "medium")]
    trace_url_template: Annotated[
        str | None, about("Where traces are shown; `{trace_id}` stands for one.", "https://jaeger/trace/{trace_id}")
    ]
