"""Tasks in responses, and the bodies of cancel, retry and explain."""

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
from tideq.queue_core.score import queue_score
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Task
from tideq.queue_core.telemetry.trace_context import is_sampled, trace_id_of

ERROR_EXAMPLE = {"message": "upstream timed out", "code": "TEMPORARY_UNAVAILABLE", "retriable": True, "details": None}


class ProgressOut(ResponseSchema, kw_only=True):
    """The progress reported by the worker."""

    percent: Annotated[float, about("0 to 100.", 45.0)]
    message: Annotated[str, about("Text of the report.", "12 of 27 pages")]


class BackoffOut(ResponseSchema, kw_only=True):
    """The task's own delays between retries."""

    base_seconds: Annotated[float, about("Delay before the first retry.", 10.0)]
    multiplier: Annotated[float, about("Growth of the delay per retry.", 2.0)]
    cap_seconds: Annotated[float, about("Longest delay.", 21_600.0)]


class TaskOut(ResponseSchema, kw_only=True):
    """A task as it is now."""

    task_id: TaskId
    task_type: TaskType
    parameters: Annotated[JsonObject, about("Parameters as submitted.", {"width": 640})]
    status: Annotated[TaskState, about("State of the task.", "executing")]
    reason: Annotated[Reason, about("Reason of the state.", "started")]
    priority: Annotated[str, about("Priority level.", "high")]
    required_capabilities: Annotated[tuple[str, ...], about("Capabilities that a worker needs for the task.", ["gpu"])]
    tags: Annotated[dict[str, str], about("Labels for filtering lists.", {"customer": "c-118"})]
    timeout_seconds: Annotated[float, about("Longest time of one execution.", 300.0)]
    max_retries: Annotated[int, about("Retries after failed executions.", 5)]
    client_id: Annotated[str, about("The client whose limits apply.", "shop")]
    idempotency_key: Annotated[str | None, about("Idempotency key of the submission.", "order-1042")]
    run_at: Annotated[Instant | None, about("Earliest start, as submitted.", None)]
    head_start_seconds: Annotated[float, about("Finer priority: ranks as if submitted this much earlier.", 0.0)]
    backoff: Annotated[BackoffOut | None, about("Null if the service's default applies.", None)]
    version: Annotated[int, about("Number of transitions.", 3)]
    attempt: Annotated[int, about("Number of claims.", 1)]
    retry_count: Annotated[Count, about("Failed or timed-out executions counted against `max_retries`.")]
    losses: Annotated[Count, about("Executions whose worker died.")]
    deliveries: Annotated[Count, about("Claims that timed out before the start.")]
    created_at: Instant
    eligible_at: Annotated[Instant, about("The instant from which the task's age counts.")]
    visible_at: Annotated[Instant | None, about("End of the hidden time, if the task is hidden.")]
    assigned_at: Annotated[Instant | None, about("Time of the last claim.")]
    started_at: Annotated[Instant | None, about("Time of the last start.")]
    completed_at: Annotated[Instant | None, about("Time of the terminal state.", None)]
    assigned_worker_id: Annotated[WorkerId | None, about("The worker that holds the task.")]
    queue_score: Annotated[float | None, about("The priority's offset minus the age; lower runs first.", None)]
    queue_position: Annotated[int | None, about("Tasks ahead in the task's lane; null while hidden.", None)]
    estimated_wait_seconds: Annotated[float | None, about("Tasks ahead divided by the recent throughput.", None)]
    progress: ProgressOut | None
    result: Annotated[AnyJson, about("Result of the task.", None)]
    error: Annotated[
        Raw, about("Error of the latest attempt, also while a retry waits.", None, type=["object", "null"])
    ]
    errors: Annotated[
        list[Annotated[Raw, about("As reported by the worker.", type="object")]],
        about("Errors of failed attempts: the last twenty of a single task, only the last in lists.", [ERROR_EXAMPLE]),
    ]
    error_count: Annotated[Count, about("Number of failed attempts; `errors` has the last ones.")]
    trace_id: TraceId
    trace_is_sampled: Annotated[bool, about("Whether the trace is exported, by its sampled flag.", True)]
    current_state_duration_seconds: Annotated[float, about("Time since the last transition.", 4.2)]


class CancelOut(ResponseSchema, kw_only=True):
    """The task was cancelled."""

    task_id: TaskId
    status: Annotated[TaskState, about("State of the task.", "cancelled")] = TaskState.CANCELLED
    was_executing: Annotated[bool, about("Whether a worker had started it.", True)]
    worker_notified: Annotated[
        bool, about("Whether a worker holds it and is notified with its next poll or heartbeat.", True)
    ]


class PurgedOut(ResponseSchema, kw_only=True):
    """The finished task was removed."""

    task_id: TaskId
    purged: Annotated[bool, about("Always true.", True)] = True


class RetryIn(RequestSchema, kw_only=True):
    """Options of a retry or replay."""

    reset_retry_count: Annotated[bool, about("Reset the retry, loss and delivery counts.", True)] = True
    new_priority: (
        Annotated[Priority, msgspec.Meta(min_length=1), about("New priority; without it the old one stays.")] | None
    ) = None


class RetryOut(ResponseSchema, kw_only=True):
    """The task is queued again."""

    task_id: TaskId
    status: Annotated[TaskState, about("State of the task.", "queued")] = TaskState.QUEUED
    version: Annotated[int, about("Number of transitions.", 7)]


class ExplanationOut(ResponseSchema, kw_only=True):
    """Reasons why a task has not started."""

    task_id: TaskId
    status: Annotated[TaskState, about("State of the task.", "queued")]
    reason: Annotated[str, about("Reason of the state.", "submitted")]
    queue_score: Annotated[float | None, about("The priority's offset minus the age; lower runs first.", 0.0)]
    queue_position: Annotated[int | None, about("Tasks ahead in the task's lane; null while hidden.", 0)]
    global_position: Annotated[int | None, about("Ready tasks ahead in all lanes; null while hidden.", 12)]
    visible_at: Annotated[Instant | None, about("End of the hidden time, if the task is hidden.", None)]
    serving_workers: Annotated[Count, about("Active workers that could claim it.", 2)]
    can_start_at: Annotated[Instant | None, about("Earliest start; null if an operator or a worker must act first.")]
    blocked_by: Annotated[
        list[str], about("Reasons in words, the most important first.", ["12 ready tasks rank before it"])
    ]


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
        queue_score=queue_score(task.rank, task.now_ms) if task.state is TaskState.QUEUED else None,
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
