"""The forms of a task: as submitted, as defined, as claimed, and as read back.

All are frozen. `parameters`, `result` and errors are JSON, stored as the received bytes: the queue never decodes them,
so no number loses a digit and a hostile document costs nothing here.
"""

from collections.abc import Mapping

import msgspec

from tideq.queue_core.circuits import CircuitState
from tideq.queue_core.lanes import lane_signature
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.states import Reason, TaskState

ANONYMOUS = "anonymous"


class TraceContext(msgspec.Struct, frozen=True, array_like=True):
    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""


class NewTask(msgspec.Struct, frozen=True):
    """A submission. A field that is None takes the default of its priority or of the service."""

    task_type: str
    parameters: bytes = b"{}"
    priority: str | None = None
    required_capabilities: tuple[str, ...] = ()
    timeout_ms: int | None = None
    max_retries: int | None = None
    run_at_ms: int | None = None
    delay_ms: int | None = None
    idempotency_key: str | None = None
    tags: Mapping[str, str] = {}
    backoff: Backoff | None = None
    head_start_ms: int = 0
    client_id: str = ANONYMOUS
    trace: TraceContext = TraceContext()
    task_id: str | None = None
    batch_size: int = 0
    """Size of a batch that shares one idempotency key, as part of its fingerprint; 0 for other tasks.

    The last task carries the batch's key; keys of the other tasks matter only in a batch with separate keys.
    """
    searchable: Mapping[str, str] = {}
    """Parameters by which history can find the task, as texts."""


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """The half of a task that never changes, packed once and opaque to the scripts.

    Persisted as a list of values, in which the position identifies the field. New fields go to the end and have
    defaults; fields are never removed or reordered. A shorter list is of an earlier version; additional values of a
    later version are kept unchanged, in the store and in history.
    """

    task_type: str
    parameters: bytes
    required_capabilities: tuple[str, ...] = ()
    tags: dict[str, str] | None = None
    trace: TraceContext | None = None
    client_id: str = ANONYMOUS
    idempotency_key: str | None = None
    run_at_ms: int | None = None
    head_start_ms: int = 0
    backoff: Backoff | None = None
    searchable: dict[str, str] | None = None

    @property
    def signature(self) -> str:
        return lane_signature(self.task_type, self.required_capabilities)


class RateLimitState(msgspec.Struct, frozen=True):
    """A client's rate limit: `size` submissions at once, refilled within `window_ms`, `left` of them now."""

    size: int
    window_ms: int
    left: int
    full_in_ms: int


class Submitted(msgspec.Struct, frozen=True):
    """The result of a submission. `is_new` is false if the idempotency key or the id already had a task."""

    task_id: str
    is_new: bool
    rank: int | None
    visible_at_ms: int | None
    lane_position: int | None
    now_ms: int
    bucket: RateLimitState | None = None
    """None if clients have no rate limit."""


class ClaimedTask(msgspec.Struct, frozen=True):
    task_id: str
    definition: Definition
    attempt: int
    lease: str
    timeout_ms: int
    visible_at_ms: int
    rank: int | None = None
    """Set only in claims that merge several partitions."""
    is_started: bool = False
    """Whether the task is already executing."""
    retry_count: int = 0
    losses: int = 0


class Claim(msgspec.Struct, frozen=True):
    """The result of a claim.

    `answer` numbers the replies to one `poll_id`; a repeated claim makes sense from `retry_at_ms` on.
    """

    tasks: tuple[ClaimedTask, ...]
    answer: int
    now_ms: int
    retry_at_ms: int | None
    stops: tuple["Stop", ...]
    worker_status: str
    should_drain: bool
    """Whether an operator drains the worker: it should finish its tasks and deregister."""
    profile: str
    """The lanes that the worker serves, as in `lanes.worker_profile`."""
    circuits: tuple[CircuitState, ...] = ()
    """The worker's circuits that are open or on trial."""
    is_repeat: bool = False
    """Whether these tasks were already returned by an earlier reply to this poll, which may have arrived."""
    taken: tuple[tuple[str, int], ...] = ()
    """For one of several partitions: tasks ever claimed there under each limit that applied to this claim."""


class Stop(msgspec.Struct, frozen=True):
    """An attempt that its worker should stop: the task was cancelled, timed out or went to another worker."""

    task_id: str
    lease: str


class Progress(msgspec.Struct, frozen=True):
    percent: float
    message: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as stored now."""

    task_id: str
    definition: Definition
    state: TaskState
    reason: Reason
    version: int
    rank: int
    lane: int
    priority: str
    attempt: int
    retry_count: int
    losses: int
    deliveries: int
    max_retries: int
    timeout_ms: int
    created_at_ms: int
    eligible_at_ms: int
    state_since_ms: int
    visible_at_ms: int | None
    assigned_at_ms: int | None
    started_at_ms: int | None
    ended_at_ms: int | None
    worker_id: str | None
    lane_position: int | None
    progress: Progress | None
    result: bytes | None
    errors: tuple[bytes, ...]
    """Errors of the latest failed attempts: at most twenty, one in lists."""
    error_count: int
    """Number of failed attempts."""
    now_ms: int


class WorkerDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    task_types: tuple[str, ...] | None = None
    """None accepts any type."""
    capabilities: tuple[str, ...] = ()
    capacity: int = 1
    version: str = ""
    host: str = ""
    health_port: int | None = None
    name: str = ""
