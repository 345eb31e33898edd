"""A task as it is read back, and what may be done with it."""

from typing import Annotated

import msgspec

from tideq.api.schemas.base import (
    NULL,
    AnyJson,
    Count,
    Instant,
    JsonObject,
    Priority,
    Raw,
    RequestSchema,
    ResponseSchema,
    TaskId,
    TaskType,
    TraceId,
    WorkerId,
    about,
)
from tideq.api.schemas.times import maybe_rfc3339, rfc3339
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.score import shown_score
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Task
from tideq.queue_core.telemetry.trace_context import is_sampled, trace_id_of

ERROR_EXAMPLE = {"message": "upstream timed out", "code": "TEMPORARY_UNAVAILABLE", "retriable": True, "details": None}


class ProgressOut(ResponseSchema, kw_only=True):
    """How far the worker said it is."""

    percent: Annotated[float, about("0 to 100.", 45.0)]
    message: Annotated[str, about("In the worker's words.", "12 of 27 pages")]


class BackoffOut(ResponseSchema, kw_only=True):
    """The task's own delays between retries."""

    base_seconds: Annotated[float, about("Before the first retry.", 10.0)]
    multiplier: Annotated[float, about("From one retry to the next.", 2.0)]
    cap_seconds: Annotated[float, about("Never longer than this.", 21_600.0)]


class TaskOut(ResponseSchema, kw_only=True):
    """A task as it is now."""

    task_id: TaskId
    task_type: TaskType
    parameters: Annotated[JsonObject, about("As they were submitted.", {"width": 640})]
    status: Annotated[TaskState, about("Where it is.", "executing")]
    reason: Annotated[Reason, about("Why it is there.", "started")]
    priority: Annotated[str, about("Its level.", "high")]
    required_capabilities: Annotated[tuple[str, ...], about("What a worker must have to take it.", ["gpu"])]
    tags: Annotated[dict[str, str], about("For finding it again.", {"customer": "c-118"})]
    timeout_seconds: Annotated[float, about("How long one execution may take.", 300.0)]
    max_retries: Annotated[int, about("How often it is tried again.", 5)]
    client_id: Annotated[str, about("Who submitted it.", "shop")]
    idempotency_key: Annotated[str | None, about("As it was submitted.", "order-1042")]
    run_at: Annotated[Instant | None, about("Not before this instant.", None)]
    head_start_seconds: Annotated[float, about("Finer priority.", 0.0)]
    backoff: Annotated[BackoffOut | None, about("Null where the service's own applies.", None)]
    version: Annotated[int, about("Counts its transitions.", 3)]
    attempt: Annotated[int, about("Counts its claims.", 1)]
    retry_count: Annotated[Count, about("Failed or timed-out executions paid from `max_retries`.")]
    losses: Annotated[Count, about("Workers that died executing it.")]
    deliveries: Annotated[Count, about("Assignments that lapsed unstarted.")]
    created_at: Instant
    eligible_at: Annotated[Instant, about("From when on it ranks.")]
    visible_at: Annotated[Instant | None, about("Until when it is hidden, if it is.")]
    assigned_at: Annotated[Instant | None, about("When it was claimed last.")]
    started_at: Annotated[Instant | None, about("When it was started last.")]
    completed_at: Annotated[Instant | None, about("When it came to its end.", None)]
    assigned_worker_id: Annotated[WorkerId | None, about("Who holds it.")]
    queue_score: Annotated[float | None, about("The priority's offset minus the age; lower runs first.", None)]
    queue_position: Annotated[int | None, about("Tasks before it in its lane; null while hidden.", None)]
    estimated_wait_seconds: Annotated[float | None, about("What is ahead by what finished lately.", None)]
    progress: ProgressOut | None
    result: Annotated[AnyJson, about("What its worker delivered.", None)]
    error: Annotated[Raw, about("The latest attempt's, also while a retry waits.", None, type=["object", "null"])]
    errors: Annotated[
        list[Annotated[Raw, about("As its worker told it.", type="object")]],
        about(
            "One for each failed attempt: where one task is read the last twenty, in lists the last.", [ERROR_EXAMPLE]
        ),
    ]
    error_count: Annotated[Count, about("How many attempts failed, of which `errors` has the last.")]
    trace_id: TraceId
    trace_is_sampled: Annotated[bool, about("Whether that trace is kept anywhere, as its flag says.", True)]
    current_state_duration_seconds: Annotated[float, about("How long it has been where it is.", 4.2)]


class CancelOut(ResponseSchema, kw_only=True):
    """The task was called off."""

    task_id: TaskId
    status: Annotated[TaskState, about("Where it is now.", "cancelled")] = TaskState.CANCELLED
    was_executing: Annotated[bool, about("A worker had started it.", True)]
    worker_notified: Annotated[bool, about("Its worker is told to stop with its next poll or heartbeat.", True)]


class PurgedOut(ResponseSchema, kw_only=True):
    """The task was removed, finished as it was."""

    task_id: TaskId
    purged: Annotated[bool, about("It is gone.", True)] = True


class RetryIn(RequestSchema, kw_only=True):
    """How a task shall run again."""

    reset_retry_count: Annotated[bool, about("Begin with fresh budgets.", True)] = True
    new_priority: Annotated[Priority, msgspec.Meta(min_length=1), about("Another level than before.")] | None = None


class RetryOut(ResponseSchema, kw_only=True):
    """The task waits again."""

    task_id: TaskId
    status: Annotated[TaskState, about("Where it is now.", "queued")] = TaskState.QUEUED
    version: Annotated[int, about("Counts its transitions.", 7)]


class ExplanationOut(ResponseSchema, kw_only=True):
    """What stands between a task and its execution."""

    task_id: TaskId
    status: Annotated[TaskState, about("Where it is.", "queued")]
    reason: Annotated[str, about("Why it is there.", "submitted")]
    queue_score: Annotated[float | None, about("The priority's offset minus the age; lower runs first.", 0.0)]
    queue_position: Annotated[int | None, about("Tasks before it in its lane; null while hidden.", 0)]
    global_position: Annotated[int | None, about("Ready tasks before it in all lanes; null while hidden.", 12)]
    visible_at: Annotated[Instant | None, about("Until when it is hidden, if it is.", None)]
    serving_workers: Annotated[Count, about("Active workers that could take it.", 2)]
    can_start_at: Annotated[Instant | None, about("The earliest instant time alone allows.")]
    held_back_by: Annotated[list[str], about("The most telling thing first.", ["12 ready tasks rank before it"])]


def task_out(task: Task, estimated_wait_seconds: float | None = None) -> TaskOut:
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
        backoff=backoff_out(definition.backoff),
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
        estimated_wait_seconds=estimated_wait_seconds,
        progress=ProgressOut(percent=task.progress.percent, message=task.progress.message) if task.progress else None,
        result=NULL if task.result is None else Raw(task.result),
        error=Raw(task.errors[-1]) if task.errors else NULL,
        errors=[Raw(error) for error in task.errors],
        error_count=task.error_count,
        trace_id=trace_id_of(task.task_id, definition.trace and definition.trace.traceparent),
        trace_is_sampled=definition.trace is not None and is_sampled(definition.trace.traceparent),
        current_state_duration_seconds=max(task.now_ms - task.state_since_ms, 0) / 1000,
    )


def backoff_out(backoff: Backoff | None) -> BackoffOut | None:
    if backoff is None:
        return None
    return BackoffOut(
        base_seconds=backoff.base_ms / 1000, multiplier=backoff.multiplier, cap_seconds=backoff.cap_ms / 1000
    )
