"""What travels through the queue: a task as submitted, as kept, as claimed, and as read back.

All are frozen. `parameters`, `result` and errors are JSON kept as the bytes that came: the queue never decodes
them, so no number loses a digit and no hostile document costs anything here.
"""

from collections.abc import Mapping

import msgspec

from tideq.queue_core.circuits import HeldBack
from tideq.queue_core.lanes import lane_signature
from tideq.queue_core.retry_policy import Backoff
from tideq.queue_core.states import Reason, TaskState

ANONYMOUS = "anonymous"


class TraceContext(msgspec.Struct, frozen=True, array_like=True):
    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""


class NewTask(msgspec.Struct, frozen=True):
    """A submission. What is `None` takes the priority's or the service's default."""

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
    """Of a batch that shares one idempotency key: with more or fewer tasks it would be another batch.

    The last task's key is the same whatever the batch; those of others count only beside tasks with keys of their own.
    """
    searchable: Mapping[str, str] = {}
    """Parameters by which history can find it, as texts."""


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """The half of a task that never changes, packed once and opaque to the scripts.

    Persisted as a list of values that says how many there are, and that is its format: where a field lies says which it
    is. So new fields go to the end and have defaults, fields are never removed or reordered, a shorter list is of an
    earlier version, and what follows in a longer one is kept as it came, in the store and in history.
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
    """How much a client may submit: `size` at once, filled again within `window_ms`, `left` of it now."""

    size: int
    window_ms: int
    left: int
    full_in_ms: int


class Submitted(msgspec.Struct, frozen=True):
    """The answer to a submission. `is_new` is false where an idempotency key or id was known already."""

    task_id: str
    is_new: bool
    rank: int | None
    visible_at_ms: int | None
    lane_position: int | None
    now_ms: int
    bucket: RateLimitState | None = None
    """None where clients have no rate limit."""


class ClaimedTask(msgspec.Struct, frozen=True):
    task_id: str
    definition: Definition
    attempt: int
    lease: str
    timeout_ms: int
    visible_at_ms: int
    rank: int | None = None
    """Told where tasks of several partitions are put in order."""
    is_started: bool = False
    """It is executing already."""
    retry_count: int = 0
    losses: int = 0


class Claim(msgspec.Struct, frozen=True):
    """What one claim got.

    `answer` numbers the answers to one `poll_id`; `retry_at_ms` is when it is worth asking again.
    """

    tasks: tuple[ClaimedTask, ...]
    answer: int
    now_ms: int
    retry_at_ms: int | None
    stops: tuple["Stop", ...]
    worker_status: str
    should_drain: bool
    """An operator wants the worker to finish what it holds and leave."""
    profile: str
    """What the worker serves."""
    held_back: tuple[HeldBack, ...] = ()
    """Of which types the worker is given nothing, or a few to try."""
    is_repeat: bool = False
    """An earlier answer to the same poll handed these out; that one may have arrived."""
    taken: tuple[tuple[str, int], ...] = ()
    """Of one of several partitions: how many tasks each limit that let these out ever let out there."""


class Stop(msgspec.Struct, frozen=True):
    """An attempt its worker should abandon: the task was cancelled, timed out or given to another."""

    task_id: str
    lease: str


class Progress(msgspec.Struct, frozen=True):
    percent: float
    message: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task as the store has it now."""

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
    """Of the last attempts that failed: twenty at most, one in lists."""
    error_count: int
    """How many failed."""
    now_ms: int


class WorkerDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    task_types: tuple[str, ...] | None = None
    """`None` takes any type."""
    capabilities: tuple[str, ...] = ()
    capacity: int = 1
    version: str = ""
    host: str = ""
    health_port: int | None = None
    name: str = ""
