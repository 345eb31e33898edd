"""Handing in tasks."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, cast

import msgspec

from tideq.api.schemas.base import (
    EMPTY_OBJECT,
    UUID7_PATTERN,
    Answer,
    CheckedName,
    Instant,
    JsonObject,
    Priority,
    Request,
    Seconds,
    TaskId,
    TaskType,
    about,
)
from tideq.api.schemas.times import InstantIn, instant_ms, maybe_rfc3339, to_ms
from tideq.queue_core.durability import Durability
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.score import shown_score
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask, Submitted, Task, TraceContext

Capabilities = Annotated[
    list[CheckedName], about("What a worker must have to take it.", ["gpu"], maxItems=16, default=[])
]
Tags = Annotated[
    dict[CheckedName, Annotated[str, about("Any text.", maxLength=256)]],
    about("For finding it again.", {"customer": "c-118"}, maxProperties=32, default={}),
]


class BackoffIn(Request, kw_only=True):
    """How long a failed task waits before it is tried again: `min(base · multiplier^n, cap)`, give or take a fifth."""

    base_seconds: Annotated[Seconds, about("Before the first retry.", 10)] = 10
    multiplier: Annotated[float, msgspec.Meta(gt=0, le=1000), about("From one retry to the next.", 2)] = 2
    cap_seconds: Annotated[Seconds, about("Never longer than this.", 21_600)] = 21_600

    def to_domain(self) -> Backoff:
        return Backoff(to_ms(self.base_seconds), float(self.multiplier), to_ms(self.cap_seconds))


class SubmitIn(Request, kw_only=True):
    """A task to be done. What is left out or null takes the priority's or the service's default."""

    task_type: TaskType
    parameters: Annotated[
        JsonObject, about("What the worker is given, byte for byte as it came.", {"width": 640}, default={})
    ] = msgspec.field(default_factory=lambda: EMPTY_OBJECT)
    priority: Priority | None = None
    required_capabilities: Capabilities = msgspec.field(default_factory=list)
    timeout_seconds: (
        Annotated[
            float,
            msgspec.Meta(ge=0.001, le=4e9),
            about("How long one execution may take.", 120, configured="execution_seconds"),
        ]
        | None
    ) = None
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=1000), about("How often it is tried again.", 5)] | None = None
    run_at: Annotated[InstantIn, about("Not before this instant, between 1970 and 2109.")] | None = None
    delay_seconds: Annotated[Seconds, about("Not before this time has passed; instead of `run_at`.")] | None = None
    idempotency_key: (
        Annotated[str, about("Submitting it again within 24 h answers with the same task.", minLength=1, maxLength=255)]
        | None
    ) = None
    tags: Tags = msgspec.field(default_factory=dict)
    backoff: BackoffIn | None = None
    head_start_seconds: Annotated[
        float, msgspec.Meta(ge=-4e9, le=4e9), about("Finer priority: ranks as if submitted that much earlier.")
    ] = 0
    client_id: (
        Annotated[CheckedName, about("Whose limits count: the key's own name, or a client the key may submit as.")]
        | None
    ) = None
    task_id: Annotated[str, about("The id it shall have, a UUIDv7.", pattern=UUID7_PATTERN)] | None = None

    durability: Annotated[Durability, about("How safe it must be before it is answered.", "store")] = Durability.STORE

    also: ClassVar[dict[str, Any]] = {
        "not": {
            "required": ["run_at", "delay_seconds"],
            "properties": {"run_at": {"type": "string"}, "delay_seconds": {"type": "number"}},
        }
    }

    def to_domain(
        self, parameters: bytes, client_id: str, key: str | None, trace: TraceContext, batch_size: int
    ) -> NewTask:
        """The body's own key goes before any other.

        In the order of `NewTask`: by their names it takes three times as long, 0.6 µs of the 16 that a task of a batch
        has in all.
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


class BatchIn(Request, kw_only=True):
    """Tasks of one client, taken all or none."""

    tasks: Annotated[list[SubmitIn], msgspec.Meta(min_length=1, max_length=1000), about("In the order they rank.")]
    wants_positions: Annotated[
        bool, about("Whether to tell each one's position and estimate, as for a task submitted by itself.", True)
    ] = False


class SubmittedStatus(StrEnum):
    """A task's state, or that neither the store nor history has it any more."""

    QUEUED = TaskState.QUEUED
    ASSIGNED = TaskState.ASSIGNED
    EXECUTING = TaskState.EXECUTING
    COMPLETED = TaskState.COMPLETED
    FAILED = TaskState.FAILED
    DEAD_LETTER = TaskState.DEAD_LETTER
    CANCELLED = TaskState.CANCELLED
    GONE = "gone"


STATUSES = {status.value: status for status in SubmittedStatus}


class SubmittedOut(Answer, kw_only=True):
    """A task that was taken, or that its idempotency key or id already stood for."""

    task_id: TaskId
    status: Annotated[
        SubmittedStatus,
        about("Where it is; `gone` for one that ended and was removed, which can be read no more.", "queued"),
    ] = SubmittedStatus.QUEUED
    queue_score: Annotated[float | None, about("The priority's offset minus the age; lower runs first.", 0.0)]
    queue_position: Annotated[int | None, about("Tasks before it in its lane; null while hidden.", 3)]
    estimated_wait_seconds: Annotated[float | None, about("What is ahead by what finished lately.", None)] = None
    visible_at: Annotated[Instant | None, about("Until when it is hidden, if it is.", None)]
    durability: Annotated[Durability, about("How safe it is.", "store")] = Durability.STORE


class BatchOut(Answer, kw_only=True):
    """One entry a task, in the order they were given."""

    tasks: list[SubmittedOut]


def submitted_out(
    answer: Submitted,
    known: Task | None = None,
    estimated_wait_seconds: float | None = None,
    durability: Durability = Durability.STORE,
) -> SubmittedOut:
    """A repeated submission is answered with how its task is by now."""
    if known is not None:
        return SubmittedOut(
            task_id=known.task_id,
            status=_status_of(known.state),
            queue_score=shown_score(known.rank, known.now_ms) if known.state is TaskState.QUEUED else None,
            queue_position=known.lane_position,
            estimated_wait_seconds=estimated_wait_seconds,
            visible_at=maybe_rfc3339(known.visible_at_ms),
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
        queue_score=None if answer.rank is None else shown_score(answer.rank, answer.now_ms),
        queue_position=answer.lane_position,
        estimated_wait_seconds=estimated_wait_seconds,
        visible_at=maybe_rfc3339(answer.visible_at_ms),
        durability=durability,
    )


def _status_of(state: TaskState) -> SubmittedStatus:
    """A word that only a later version knows is passed on as it is, as by `state_named`."""
    return STATUSES.get(state) or cast("SubmittedStatus", state)
