"""Tasks as responses of the service. Unknown fields are ignored; fields of later services have defaults."""

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

import msgspec

from tideq.client.encoding import decode, decode_as
from tideq.client.options import StrictStruct

Durability = Literal["store", "replica", "disk", "history"]
Status = Literal["queued", "assigned", "executing", "completed", "failed", "cancelled", "dead_letter"]
DONE = frozenset({"completed", "failed", "cancelled", "dead_letter"})
NULL = msgspec.Raw(b"null")

T = TypeVar("T")


class Backoff(msgspec.Struct, frozen=True, kw_only=True, metaclass=StrictStruct):
    """How long a failed task waits: `min(base · multiplier^n, cap)`, plus or minus a fifth."""

    base_seconds: float = 10
    multiplier: float = 2
    cap_seconds: float = 21_600


class TaskOptions(TypedDict, total=False):
    """The options of a submission; `NewTask` documents them."""

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


class NewTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task to submit. Omitted fields take the default of the priority or the service.

    An unknown option is refused in msgspec's words: a constructor in Python would cost 4 % of a bulk submission.
    """

    task_type: str
    parameters: Any = {}
    """A mapping, a dataclass or a struct: it becomes a JSON object."""
    priority: str | None = None
    """`high`, `medium`, `low`, or another level configured in the service."""
    required_capabilities: Sequence[str] = ()
    """Capabilities that a worker must have."""
    timeout_seconds: float | None = None
    """Limit of one execution."""
    max_retries: int | None = None
    run_at: datetime | None = None
    """Earliest start; must have a time zone."""
    delay_seconds: float | None = None
    """Instead of `run_at`."""
    idempotency_key: str | None = None
    """A second submission with this key within 24 h returns the first task."""
    tags: Mapping[str, str] = {}
    """For the filters of lists."""
    backoff: Backoff | None = None
    head_start_seconds: float = 0
    """Finer priority: the rank is as if submitted that much earlier."""
    client_id: str | None = None
    """The client whose limits apply; by default the name of the key."""
    task_id: str | None = None
    """Your own UUIDv7. If a task with this id exists, that task is returned."""
    durability: Durability = "store"
    """How durable the task must be before the service responds."""

    def __post_init__(self) -> None:
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise ValueError(f"run_at={self.run_at} has no time zone: use datetime.now(UTC)")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted task, or the existing task of the idempotency key or id."""

    task_id: str
    status: str = "queued"
    """`gone` for a task that ended and was removed: it cannot be read, and its key creates no other task."""
    queue_score: float | None = None
    queue_position: int | None = None
    """Number of tasks before it in its lane; None while hidden."""
    estimated_wait_seconds: float | None = None
    visible_at: datetime | None = None
    durability: str = "store"


class TaskError(msgspec.Struct, frozen=True, kw_only=True):
    """The error of one attempt, as its worker reported it."""

    message: str = ""
    code: str = ""
    retriable: bool = True
    details: Any = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    percent: float
    message: str = ""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One transition of a task."""

    state: str
    at: datetime
    version: int
    reason: str = ""
    attempt: int = 0
    worker_id: str | None = None
    error: TaskError | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A task at the time it was read."""

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
    """Number of transitions."""
    attempt: int = 0
    """Number of claims."""
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
    """Error of the latest attempt, also while a retry waits."""
    errors: tuple[TaskError, ...] = ()
    """Errors of failed attempts: the last twenty where one task is read, the last one in lists."""
    error_count: int = 0
    """Number of failed attempts, of which `errors` has the last."""
    raw_trace_id: str | None = msgspec.field(default=None, name="trace_id")
    """None from an older service."""
    trace_is_sampled: bool = False
    """Whether that trace is sampled, so that a collector has it."""
    current_state_duration_seconds: float = 0.0
    state_history: tuple[StateChange, ...] = ()
    """All its transitions, if requested."""
    history_lag_seconds: float = 0.0
    """0 if `state_history` is complete, else the age of the missing transitions."""

    @property
    def is_done(self) -> bool:
        return self.status in DONE

    @property
    def has_succeeded(self) -> bool:
        return self.status == "completed"

    @property
    def trace_id(self) -> str:
        """Id of the trace the task was submitted in, else the digits of the task id."""
        return self.raw_trace_id or self.task_id.replace("-", "")

    @functools.cached_property
    def parameters(self) -> Any:
        return decode(self.raw_parameters)

    @functools.cached_property
    def result(self) -> Any:
        """The result of its worker; None without a result, or for null."""
        return decode(self.raw_result)

    @property
    def result_bytes(self) -> bytes:
        """The result as the JSON text its worker sent."""
        return bytes(self.raw_result)

    def result_as(self, kind: type[T]) -> T:
        """The result as a dataclass, a struct or another type that msgspec supports."""
        return decode_as(self.raw_result, kind)


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[Task, ...]
    next_cursor: str | None = None
    total: int | None = None
    total_is_exact: bool = True


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The task was cancelled."""

    task_id: str
    status: str = "cancelled"
    was_executing: bool | None = None
    """None where the response was lost and the repeated call found the task cancelled."""
    worker_notified: bool | None = None


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    task_id: str
    purged: bool = True


class CleanedUp(msgspec.Struct, frozen=True, kw_only=True):
    deleted: int


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The task is queued again."""

    task_id: str
    status: str = "queued"
    version: int | None = None
    """None where the response was lost and the repeated call found the task live."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a task is not executing yet."""

    task_id: str
    status: str
    reason: str = ""
    queue_score: float | None = None
    queue_position: int | None = None
    global_position: int | None = None
    visible_at: datetime | None = None
    serving_workers: int = 0
    """Active workers that serve its type and capabilities."""
    can_start_at: datetime | None = None
    blocked_by: tuple[str, ...] = ()
    """Reasons, the most important first."""


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page may be short, even empty, and still have a next page."""

    items: tuple[T, ...]
    next_cursor: str | None = None
    total: int | None = None
    """Of all pages, if the count was requested."""
    total_is_exact: bool = True
    """False: `total` is a lower bound."""
