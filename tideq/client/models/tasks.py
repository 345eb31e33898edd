"""Tasks as a client sees them. Fields the service adds later are ignored, and so is what an older one leaves out."""

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from tideq.client.encoding import decode, decode_as
from tideq.client.options import StrictStruct

Durability = Literal["store", "replica", "disk", "history"]
Status = Literal["queued", "assigned", "executing", "completed", "failed", "cancelled", "dead_letter"]
DONE = frozenset({"completed", "failed", "cancelled", "dead_letter"})
NULL = msgspec.Raw(b"null")

T = TypeVar("T")


class Backoff(msgspec.Struct, frozen=True, kw_only=True, metaclass=StrictStruct):
    """How long a failed task waits: `min(base · multiplier^n, cap)`, give or take a fifth."""

    base_seconds: float = 10
    multiplier: float = 2
    cap_seconds: float = 21_600


class TaskOptions(TypedDict, total=False):
    """Everything a submission may say besides the type and the parameters; `NewTask` says what each means."""

    priority: str | None
    required_capabilities: Sequence[str]
    timeout_seconds: float | None
    max_retries: int | None
    run_at: datetime | None
    delay_seconds: float | None
    idempotency_key: str | None
    tags: Mapping[str, str]
    backoff: Backoff | None
    head_start_seconds: float
    client_id: str | None
    task_id: str | None
    durability: Durability


class NewTask(msgspec.Struct, frozen=True, omit_defaults=True, metaclass=StrictStruct):
    """A task to be submitted. What is left out takes the priority's or the service's default."""

    task_type: str
    parameters: Any = {}
    """A mapping, a dataclass or a struct: it becomes a JSON object."""
    priority: str | None = None
    """`high`, `medium`, `low`, or another level the service is configured with."""
    required_capabilities: Sequence[str] = ()
    """What a worker must have to take it."""
    timeout_seconds: float | None = None
    """How long one execution may take."""
    max_retries: int | None = None
    run_at: datetime | None = None
    """Not before this instant, which must know its time zone."""
    delay_seconds: float | None = None
    """Instead of `run_at`."""
    idempotency_key: str | None = None
    """Submitting it again within 24 h answers with the same task."""
    tags: Mapping[str, str] = {}
    """For finding it again."""
    backoff: Backoff | None = None
    head_start_seconds: float = 0
    """Finer priority: ranks as if submitted that much earlier."""
    client_id: str | None = None
    """Whose limits count; the key's own name by default."""
    task_id: str | None = None
    """A UUIDv7 of your own. A task that has it already is answered instead."""
    durability: Durability = "store"
    """How safe it must be before it is answered."""

    def __post_init__(self) -> None:
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise ValueError(f"run_at={self.run_at} says no time zone: try datetime.now(UTC)")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was taken, or that its idempotency key or id already stood for."""

    task_id: str
    status: str = "queued"
    """`gone` for one that ended and was removed: it can be read no more, and the key makes no other."""
    queue_score: float | None = None
    queue_position: int | None = None
    """Tasks before it in its lane; None while hidden."""
    estimated_wait_seconds: float | None = None
    visible_at: datetime | None = None
    durability: str = "store"


class TaskError(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt failed of, in its worker's words."""

    message: str = ""
    code: str = ""
    retriable: bool = True
    details: Any = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    percent: float
    message: str = ""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a task's way."""

    state: str
    at: datetime
    version: int
    reason: str = ""
    attempt: int = 0
    worker_id: str | None = None
    error: TaskError | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A task as it was when it was read."""

    task_id: str
    task_type: str
    status: str
    raw_parameters: msgspec.Raw = msgspec.field(default_factory=lambda: NULL, name="parameters")
    raw_result: msgspec.Raw = msgspec.field(default_factory=lambda: NULL, name="result")
    reason: str = ""
    priority: str = ""
    required_capabilities: tuple[str, ...] = ()
    tags: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    timeout_seconds: float = 0.0
    max_retries: int = 0
    client_id: str = ""
    idempotency_key: str | None = None
    run_at: datetime | None = None
    head_start_seconds: float = 0.0
    backoff: Backoff | None = None
    version: int = 0
    """Counts its transitions."""
    attempt: int = 0
    """Counts its claims."""
    retry_count: int = 0
    losses: int = 0
    deliveries: int = 0
    created_at: datetime
    eligible_at: datetime | None = None
    visible_at: datetime | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    assigned_worker_id: str | None = None
    queue_score: float | None = None
    queue_position: int | None = None
    estimated_wait_seconds: float | None = None
    progress: Progress | None = None
    error: TaskError | None = None
    """The latest attempt's, also while a retry waits."""
    errors: tuple[TaskError, ...] = ()
    """Of the attempts that failed: where one task is read the last twenty, in lists the last one."""
    error_count: int = 0
    """How many failed, of which `errors` has the last."""
    raw_trace_id: str | None = msgspec.field(default=None, name="trace_id")
    """Null where an older service knows of none."""
    trace_is_sampled: bool = False
    """Whether that trace is kept anywhere."""
    current_state_duration_seconds: float = 0.0
    state_history: tuple[StateChange, ...] = ()
    """Every transition it made, where that was asked for."""
    history_lag_seconds: float = 0.0
    """0 where all of them are told; else how old the missing ones are."""

    @property
    def is_done(self) -> bool:
        return self.status in DONE

    @property
    def has_succeeded(self) -> bool:
        return self.status == "completed"

    @property
    def trace_id(self) -> str:
        """Of the trace that the task came with, or else its own: the digits of its id."""
        return self.raw_trace_id or self.task_id.replace("-", "")

    @functools.cached_property
    def parameters(self) -> Any:
        return decode(self.raw_parameters)

    @functools.cached_property
    def result(self) -> Any:
        """What its worker delivered; None where nothing was, or null."""
        return decode(self.raw_result)

    @property
    def result_bytes(self) -> bytes:
        """The result as the JSON text its worker sent."""
        return bytes(self.raw_result)

    def result_as(self, kind: type[T]) -> T:
        """The result as a dataclass, a struct or any type msgspec knows."""
        return decode_as(self.raw_result, kind)


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[Task, ...]
    next_cursor: str | None = None
    total: int | None = None
    total_is_exact: bool = True


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The task was called off."""

    task_id: str
    status: str = "cancelled"
    was_executing: bool | None = None
    """None where the answer was lost, and asking again found it cancelled."""
    worker_notified: bool | None = None


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    purged: bool = True


class CleanedUp(msgspec.Struct, frozen=True, kw_only=True):
    deleted: int


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The task waits again."""

    task_id: str
    status: str = "queued"
    version: int | None = None
    """None where the answer was lost, and asking again found it under way."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between a task and its execution."""

    task_id: str
    status: str
    reason: str = ""
    queue_score: float | None = None
    queue_position: int | None = None
    global_position: int | None = None
    visible_at: datetime | None = None
    serving_workers: int = 0
    """Active workers that could take it."""
    can_start_at: datetime | None = None
    held_back_by: tuple[str, ...] = ()
    """The most telling thing first."""
