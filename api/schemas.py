"""What travels over HTTP: requests as clients write them, answers as they rely on them.

Fields may be added, never renamed. Times are RFC 3339 in UTC, durations are seconds. The domain keeps milliseconds;
this file is where the two meet.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.score import shown_score
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import ClaimedTask, NewTask, Submitted, Task, TraceContext

Raw = msgspec.Raw
NULL = msgspec.Raw(b"null")
EMPTY_OBJECT = msgspec.Raw(b"{}")
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}\Z")]
ShortText = Annotated[str, msgspec.Meta(max_length=255)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=4e9)]


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Unknown fields are an error: a typo must not silently leave a default in place."""


class Answer(msgspec.Struct, kw_only=True):
    pass


class BackoffIn(Request, kw_only=True):
    base_seconds: Seconds = 10
    multiplier: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 2
    cap_seconds: Seconds = 21_600

    def to_domain(self) -> Backoff:
        return Backoff(_ms(self.base_seconds), float(self.multiplier), _ms(self.cap_seconds))


class SubmitIn(Request, kw_only=True):
    task_type: str
    parameters: Raw = EMPTY_OBJECT
    priority: str | None = None
    required_capabilities: list[str] = msgspec.field(default_factory=list[str])
    timeout_seconds: Seconds | None = None
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    run_at: datetime | None = None
    delay_seconds: Seconds | None = None
    idempotency_key: str | None = None
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    backoff: BackoffIn | None = None
    head_start_seconds: Annotated[float, msgspec.Meta(ge=-4e9, le=4e9)] = 0
    client_id: str | None = None
    task_id: str | None = None

    def to_domain(self, parameters: bytes, client_id: str, key: str | None, trace: TraceContext) -> NewTask:
        return NewTask(
            task_type=self.task_type,
            parameters=parameters,
            priority=self.priority,
            required_capabilities=tuple(self.required_capabilities),
            timeout_ms=None if self.timeout_seconds is None else _ms(self.timeout_seconds),
            max_retries=self.max_retries,
            run_at_ms=None if self.run_at is None else instant_ms(self.run_at),
            delay_ms=None if self.delay_seconds is None else _ms(self.delay_seconds),
            idempotency_key=key if self.idempotency_key is None else self.idempotency_key,
            tags=self.tags,
            backoff=self.backoff.to_domain() if self.backoff else None,
            head_start_ms=_ms(self.head_start_seconds),
            client_id=self.client_id or client_id,
            trace=trace,
            task_id=self.task_id,
        )


class BatchIn(Request, kw_only=True):
    tasks: Annotated[list[SubmitIn], msgspec.Meta(min_length=1, max_length=1000)]


class SubmittedOut(Answer, kw_only=True):
    task_id: str
    status: TaskState = TaskState.QUEUED
    queue_score: float | None
    queue_position: int | None
    estimated_wait_seconds: float | None = None
    visible_at: str | None


class BatchOut(Answer, kw_only=True):
    tasks: list[SubmittedOut]


class ProgressOut(Answer, kw_only=True):
    percent: float
    message: str


class TaskOut(Answer, kw_only=True):
    task_id: str
    task_type: str
    parameters: Raw
    status: TaskState
    reason: Reason
    priority: str
    required_capabilities: tuple[str, ...]
    tags: dict[str, str]
    timeout_seconds: float
    max_retries: int
    client_id: str
    idempotency_key: str | None
    run_at: str | None
    head_start_seconds: float
    backoff: BackoffIn | None
    version: int
    attempt: int
    retry_count: int
    losses: int
    deliveries: int
    created_at: str
    eligible_at: str
    visible_at: str | None
    assigned_at: str | None
    started_at: str | None
    completed_at: str | None
    assigned_worker_id: str | None
    queue_score: float | None
    queue_position: int | None
    progress: ProgressOut | None
    result: Raw
    error: Raw
    errors: list[Raw]
    trace_id: str | None
    current_state_duration_seconds: float


class CancelOut(Answer, kw_only=True):
    task_id: str
    status: TaskState = TaskState.CANCELLED
    was_executing: bool
    worker_notified: bool


class RetryIn(Request, kw_only=True):
    reset_retry_count: bool = True
    new_priority: str | None = None


class RetryOut(Answer, kw_only=True):
    task_id: str
    status: TaskState = TaskState.QUEUED
    version: int


class PauseIn(Request, kw_only=True):
    task_type: str | None = None
    reason: str = ""
    resume_at: datetime | None = None


class PauseOut(Answer, kw_only=True):
    paused: bool


class LimitsIn(Request, kw_only=True):
    task_type: str | None = None
    tasks_per_second: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0
    max_executing: Annotated[int, msgspec.Meta(ge=0)] | None = None


class RegisterIn(Request, kw_only=True):
    task_types: list[Name] | None = None
    capabilities: list[Name] = msgspec.field(default_factory=list[Name])
    capacity: int = 1
    host: ShortText = ""
    health_port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None = None
    version: ShortText = ""
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,39}\Z")] = "worker"


class RegisterOut(Answer, kw_only=True):
    worker_id: str
    poll_interval_ms: int
    heartbeat_interval_ms: int


class PollIn(Request, kw_only=True):
    available_capacity: int = 1
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=30)] = 0
    poll_id: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}\Z")] | None = None
    capabilities: list[Name] | None = None


class ClaimedOut(Answer, kw_only=True):
    task_id: str
    task_type: str
    parameters: Raw
    attempt: int
    lease: str
    timeout_seconds: float
    visible_at: str
    trace_id: str | None
    traceparent: str | None


class PollOut(Answer, kw_only=True):
    tasks: list[ClaimedOut]
    cancel: list[str]
    should_drain: bool


class HeldIn(Request, kw_only=True):
    task_id: str
    lease: str


class ExtendIn(HeldIn, kw_only=True):
    seconds: Annotated[float, msgspec.Meta(gt=0, le=4e9)]


class ProgressIn(HeldIn, kw_only=True):
    progress_percent: Annotated[float, msgspec.Meta(ge=0, le=100)]
    status_message: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    sequence: Annotated[int, msgspec.Meta(ge=0)] | None = None


class TaskErrorIn(Request, kw_only=True):
    message: str
    code: str = ""
    retriable: bool = True
    details: Raw = NULL


class ResultIn(HeldIn, kw_only=True):
    status: Literal["completed", "failed"]
    result: Raw = NULL
    error: TaskErrorIn | None = None
    execution_duration_seconds: float | None = None


class AcknowledgedOut(Answer, kw_only=True):
    acknowledged: bool = True
    visible_at: str | None = None
    status: str | None = None


class HeartbeatIn(Request, kw_only=True):
    current_load: Annotated[int, msgspec.Meta(ge=0)] = 0
    status: Literal["active", "draining", "unhealthy"] = "active"
    health: dict[str, float | int | str | bool | None] = msgspec.field(
        default_factory=dict[str, float | int | str | bool | None]
    )


class HeartbeatOut(Answer, kw_only=True):
    acknowledged: bool = True
    should_drain: bool
    cancel: list[str]


class SyncIn(Request, kw_only=True):
    starts: Annotated[list[HeldIn], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=list[HeldIn])
    results: Annotated[list[ResultIn], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=list[ResultIn])
    progress: Annotated[list[ProgressIn], msgspec.Meta(max_length=1000)] = msgspec.field(
        default_factory=list[ProgressIn]
    )
    extends: Annotated[list[ExtendIn], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=list[ExtendIn])
    releases: Annotated[list[HeldIn], msgspec.Meta(max_length=1000)] = msgspec.field(default_factory=list[HeldIn])
    available_capacity: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=30)] = 0
    poll_id: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}\Z")] | None = None


def rfc3339(instant_ms: int) -> str:
    """Instants a calendar cannot hold become the nearest it can."""
    instant_ms = min(max(instant_ms, -62_135_596_800_000), 253_402_300_799_999)
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def maybe_rfc3339(instant_ms: int | None) -> str | None:
    return None if instant_ms is None else rfc3339(instant_ms)


def submitted_out(answer: Submitted, known: Task | None = None) -> SubmittedOut:
    """A repeated submission is answered with how its task is by now."""
    if known is not None:
        return SubmittedOut(
            task_id=known.task_id,
            status=known.state,
            queue_score=shown_score(known.rank, known.now_ms) if known.state is TaskState.QUEUED else None,
            queue_position=known.lane_position,
            visible_at=maybe_rfc3339(known.visible_at_ms),
        )
    return SubmittedOut(
        task_id=answer.task_id,
        queue_score=None if answer.rank is None else shown_score(answer.rank, answer.now_ms),
        queue_position=answer.lane_position,
        visible_at=maybe_rfc3339(answer.visible_at_ms),
    )


def task_out(task: Task) -> TaskOut:
    definition = task.definition
    return TaskOut(
        task_id=task.task_id,
        task_type=definition.task_type,
        parameters=Raw(definition.parameters),
        status=task.state,
        reason=task.reason,
        priority=task.priority,
        required_capabilities=definition.required_capabilities,
        tags=definition.tags or {},
        timeout_seconds=task.timeout_ms / 1000,
        max_retries=task.max_retries,
        client_id=definition.client_id,
        idempotency_key=definition.idempotency_key,
        run_at=maybe_rfc3339(definition.run_at_ms),
        head_start_seconds=definition.head_start_ms / 1000,
        backoff=_backoff_out(definition.backoff),
        version=task.version,
        attempt=task.attempt,
        retry_count=task.retry_count,
        losses=task.losses,
        deliveries=task.deliveries,
        created_at=rfc3339(task.created_at_ms),
        eligible_at=rfc3339(task.eligible_at_ms),
        visible_at=maybe_rfc3339(task.visible_at_ms),
        assigned_at=maybe_rfc3339(task.assigned_at_ms),
        started_at=maybe_rfc3339(task.started_at_ms),
        completed_at=maybe_rfc3339(task.ended_at_ms),
        assigned_worker_id=task.worker_id,
        queue_score=shown_score(task.rank, task.now_ms) if task.state is TaskState.QUEUED else None,
        queue_position=task.lane_position,
        progress=ProgressOut(percent=task.progress.percent, message=task.progress.message) if task.progress else None,
        result=NULL if task.result is None else Raw(task.result),
        error=Raw(task.errors[-1]) if task.errors else NULL,
        errors=[Raw(error) for error in task.errors],
        trace_id=_trace_id(definition.trace),
        current_state_duration_seconds=max(task.now_ms - task.state_since_ms, 0) / 1000,
    )


def claimed_out(task: ClaimedTask) -> ClaimedOut:
    trace = task.definition.trace
    return ClaimedOut(
        task_id=task.task_id,
        task_type=task.definition.task_type,
        parameters=Raw(task.definition.parameters),
        attempt=task.attempt,
        lease=task.lease,
        timeout_seconds=task.timeout_ms / 1000,
        visible_at=rfc3339(task.visible_at_ms),
        trace_id=_trace_id(trace),
        traceparent=trace.traceparent if trace else None,
    )


def _backoff_out(backoff: Backoff | None) -> BackoffIn | None:
    if backoff is None:
        return None
    return BackoffIn(
        base_seconds=backoff.base_ms / 1000, multiplier=backoff.multiplier, cap_seconds=backoff.cap_ms / 1000
    )


def _trace_id(trace: TraceContext | None) -> str | None:
    parts = trace.traceparent.split("-") if trace else []
    return parts[1] if len(parts) == 4 else None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def instant_ms(instant: datetime) -> int:
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
