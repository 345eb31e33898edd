"""Submissions and their responses."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, cast

import msgspec

from tideq.api.schemas.base import (
    EMPTY_OBJECT,
    UUID7_PATTERN,
    CheckedName,
    Instant,
    JsonObject,
    Priority,
    RequestSchema,
    ResponseSchema,
    Seconds,
    TaskId,
    TaskType,
    about,
)
from tideq.api.schemas.times import InstantIn, instant_ms, maybe_rfc3339, to_ms
from tideq.queue_core.durability import Durability
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.score import queue_score
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, Submitted, Task, TraceContext

Capabilities = Annotated[
    list[CheckedName], about("Capabilities that a worker needs for the task.", ["gpu"], maxItems=16, default=[])
]
Tags = Annotated[
    dict[CheckedName, Annotated[str, about("Any text.", maxLength=256)]],
    about("Labels for filtering lists.", {"customer": "c-118"}, maxProperties=32, default={}),
]


class BackoffIn(RequestSchema, kw_only=True):
    """The delay before retry n, counted from 0: `min(base · multiplier^n, cap)`, ±20 %."""

    base_seconds: Annotated[Seconds, about("Delay before the first retry.", 10)] = 10
    multiplier: Annotated[float, msgspec.Meta(gt=0, le=1000), about("Growth of the delay per retry.", 2)] = 2
    cap_seconds: Annotated[Seconds, about("Longest delay.", 21_600)] = 21_600

    def to_domain(self) -> Backoff:
        return Backoff(to_ms(self.base_seconds), float(self.multiplier), to_ms(self.cap_seconds))


class SubmitIn(RequestSchema, kw_only=True):
    """A new task. Fields left out or null take the default of the priority or of the service."""

    task_type: TaskType
    parameters: Annotated[
        JsonObject, about("Input of the task, passed to the worker byte for byte.", {"width": 640}, default={})
    ] = msgspec.field(default_factory=lambda: EMPTY_OBJECT)
    priority: Priority | None = None
    required_capabilities: Capabilities = msgspec.field(default_factory=list)
    timeout_seconds: (
        Annotated[
            float,
            msgspec.Meta(ge=0.001, le=4e9),
            about("Longest time of one execution.", 120, configured="execution_seconds"),
        ]
        | None
    ) = None
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=1000), about("Retries after failed executions.", 5)] | None = None
    run_at: Annotated[InstantIn, about("Earliest start, between 1970 and 2109.")] | None = None
    delay_seconds: Annotated[Seconds, about("Earliest start, counted from now; instead of `run_at`.")] | None = None
    idempotency_key: (
        Annotated[
            str, about("A submission with the same key within 24 h returns the same task.", minLength=1, maxLength=255)
        ]
        | None
    ) = None
    tags: Tags = msgspec.field(default_factory=dict)
    backoff: BackoffIn | None = None
    head_start_seconds: Annotated[
        float, msgspec.Meta(ge=-4e9, le=4e9), about("Finer priority: ranks as if submitted this much earlier.")
    ] = 0
    client_id: (
        Annotated[
            CheckedName,
            about("The client whose limits apply: by default the key's name, or a client the key may submit as."),
        ]
        | None
    ) = None
    task_id: Annotated[str, about("The id of the new task, a UUIDv7.", pattern=UUID7_PATTERN)] | None = None

    durability: Annotated[Durability, about("Durability required before the response.", "store")] = Durability.STORE

    also: ClassVar[dict[str, Any]] = {
        "not": {
            "required": ["run_at", "delay_seconds"],
            "properties": {"run_at": {"type": "string"}, "delay_seconds": {"type": "number"}},
        }
    }

    def to_domain(
        self, parameters: bytes, client_id: str, key: str | None, trace: TraceContext, batch_size: int
    ) -> NewTask:
        """`key` is the header's; the body's own overrides it.

        Positional arguments, in the order of `NewTask`: keywords would take three times as long, 0.6 of the 16 µs of a
        task in a batch.
        """
        return NewTask(
            self.task_type,
            parameters,
            self.priority,
            tuple(self.required_capabilities),
            None if self.timeout_seconds is None else to_ms(self.timeout_seconds),
            self.max_retries,
            None if self.run_at is None else instant_ms(self.run_at),
            None if self.delay_seconds is None else to_ms(self.delay_seconds),
            key if self.idempotency_key is None else self.idempotency_key,
            self.tags,
            self.backoff.to_domain() if self.backoff else None,
            to_ms(self.head_start_seconds) if self.head_start_seconds else 0,
            client_id if self.client_id is None else self.client_id,
            trace,
            self.task_id,
            batch_size if self.idempotency_key is None else 0,
        )


class BatchIn(RequestSchema, kw_only=True):
    """Tasks of one client, all accepted or none."""

    tasks: Annotated[list[SubmitIn], msgspec.Meta(min_length=1, max_length=1000), about("In the order of their rank.")]
    include_positions: Annotated[
        bool, about("Return each task's position and estimated wait, as for a single submission.", True)
    ] = False


class SubmittedStatus(StrEnum):
    """A task's state, or `gone` if neither the store nor history has it any more."""

    QUEUED = TaskState.QUEUED
    ASSIGNED = TaskState.ASSIGNED
    EXECUTING = TaskState.EXECUTING
    COMPLETED = TaskState.COMPLETED
    FAILED = TaskState.FAILED
    DEAD_LETTER = TaskState.DEAD_LETTER
    CANCELLED = TaskState.CANCELLED
    GONE = "gone"


STATUSES = {status.value: status for status in SubmittedStatus}


class SubmittedOut(ResponseSchema, kw_only=True):
    """The accepted task, or the existing task with this idempotency key or id."""

    task_id: TaskId
    status: Annotated[
        SubmittedStatus,
        about("The task's state; `gone` for an existing task that ended and was removed.", "queued"),
    ] = SubmittedStatus.QUEUED
    queue_score: Annotated[float | None, about("The priority's offset minus the age; lower runs first.", 0.0)]
    queue_position: Annotated[int | None, about("Tasks ahead in the task's lane; null while hidden.", 3)]
    estimated_wait_seconds: Annotated[float | None, about("Tasks ahead divided by the recent throughput.", None)] = None
    visible_at: Annotated[Instant | None, about("End of the hidden time, if the task is hidden.", None)]
    durability: Annotated[Durability, about("Durability reached.", "store")] = Durability.STORE


class BatchOut(ResponseSchema, kw_only=True):
    """One entry for each task, in the order of the request."""

    tasks: list[SubmittedOut]


def submitted_out(
    answer: Submitted,
    existing: Task | None = None,
    estimated_wait_seconds: float | None = None,
    durability: Durability = Durability.STORE,
) -> SubmittedOut:
    """For a repeated submission, `existing` is its task as it is now."""
    if existing is not None:
        return SubmittedOut(
            task_id=existing.task_id,
            status=_status_of(existing.state),
            queue_score=queue_score(existing.rank, existing.now_ms) if existing.state is TaskState.QUEUED else None,
            queue_position=existing.lane_position,
            estimated_wait_seconds=estimated_wait_seconds,
            visible_at=maybe_rfc3339(existing.visible_at_ms),
            durability=durability,
        )
    if not answer.is_new:
        return SubmittedOut(
            task_id=answer.task_id,
            status=SubmittedStatus.GONE,
            queue_score=None,
            queue_position=None,
            visible_at=None,
        )
    return SubmittedOut(
        task_id=answer.task_id,
        queue_score=None if answer.rank is None else queue_score(answer.rank, answer.now_ms),
        queue_position=answer.lane_position,
        estimated_wait_seconds=estimated_wait_seconds,
        visible_at=maybe_rfc3339(answer.visible_at_ms),
        durability=durability,
    )


def _status_of(state: TaskState) -> SubmittedStatus:
    """Returns a state of a later version unchanged, like `state_named`."""
    return STATUSES.get(state) or cast("SubmittedStatus", state)
