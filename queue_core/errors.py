"""Every error of the queue.

    QueueError
    ├── Refused                  the request is refused and nothing was changed
    │   ├── InvalidTask          UnknownPriority · PayloadTooLarge · RankOutOfRange
    │   ├── InvalidRequest       a value outside its range
    │   ├── IdempotencyConflict  the key was used for another submission
    │   ├── LanesExhausted · TooManyNewLanes
    │   ├── DurabilityUnavailable
    │   └── Overloaded           QueueFull · TooManySubmissions · OutboxFull · StoreFull
    ├── Conflict                 the task or worker is not in the state that the call needs
    │   ├── TaskNotFound · WrongState · StaleLease
    │   └── UnknownWorker · WorkerExists
    └── Unavailable              try again later; some need an operator first
        ├── StoreReplaced · StoreFormatUnknown
        ├── StoreUnavailable     StoreRefused: the server answers and refuses the command
        ├── HistoryUnavailable   HistoryRefused: the database answers and refuses the statement
        ├── TaskUnreadable       a later version may read it
        └── DurabilityNotReached  the task is stored, with less durability than requested

Errors are named after the fact and carry fields and a stable `code`. The HTTP status of each is in one table, in
`api/edge/problems.py`.
"""

from typing import ClassVar

from tideq.queue_core.task import RateLimitState


class QueueError(Exception):
    code: ClassVar[str] = "queue-error"


class Refused(QueueError):
    code = "refused"


class InvalidTask(Refused):
    code = "invalid-task"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem
        self.row: int | None = None
        """Index of the task in its batch, from 0."""


class UnknownPriority(InvalidTask):
    code = "unknown-priority"

    def __init__(self, priority: str, allowed: tuple[str, ...]) -> None:
        super().__init__("priority", f"{priority!r} is not one of {', '.join(allowed)}")
        self.priority, self.allowed = priority, allowed


class PayloadTooLarge(InvalidTask):
    code = "payload-too-large"

    def __init__(self, field: str, size: int, max_bytes: int) -> None:
        super().__init__(field, f"{size} bytes is more than the {max_bytes} allowed")
        self.size, self.max_bytes = size, max_bytes


class RankOutOfRange(InvalidTask):
    code = "rank-out-of-range"

    def __init__(self, task_id: str, rank: int) -> None:
        super().__init__("run_at", f"rank {rank} lies outside what a score can hold (1970 to 2109)")
        self.task_id, self.rank = task_id, rank


class InvalidRequest(Refused):
    code = "invalid-request"

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field, self.problem = field, problem


class IdempotencyConflict(Refused):
    code = "idempotency-conflict"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"this idempotency key was used for task {task_id}, which was submitted with other content")
        self.task_id = task_id


class LanesExhausted(Refused):
    code = "lanes-exhausted"

    def __init__(self, signature: str) -> None:
        super().__init__(f"no lane is free for {signature!r}: every lane holds live tasks or did within the hour")
        self.signature = signature


class TooManyNewLanes(Refused):
    code = "too-many-new-lanes"

    def __init__(self, client_id: str, max_new_lanes: int) -> None:
        super().__init__(f"client {client_id!r} opened {max_new_lanes} new lanes today and may open no more")
        self.client_id, self.max_new_lanes = client_id, max_new_lanes


class DurabilityUnavailable(Refused):
    code = "durability-unavailable"

    def __init__(self, level: str, why: str) -> None:
        super().__init__(f"durability '{level}' is not available: {why}")
        self.level, self.field = level, "durability"


class Overloaded(Refused):
    """Refused to protect the service; a retry after `retry_after_ms` may succeed."""

    code = "overloaded"

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class QueueFull(Overloaded):
    """The queue is deeper than a depth limit that applies to this submission."""

    code = "queue-full"

    SETTINGS: ClassVar[dict[str, str]] = {
        "soft": "TIDEQ_DEPTH_REFUSE_LOW",
        "high_only": "TIDEQ_DEPTH_REFUSE_MEDIUM",
        "max": "TIDEQ_DEPTH_REFUSE_ALL",
    }
    TAKEN: ClassVar[dict[str, str]] = {
        "soft": "only tasks of the default priority or a more urgent one are accepted",
        "high_only": "only tasks of the most urgent priority are accepted",
        "max": "only tasks of the clients in TIDEQ_DEPTH_EXEMPT_CLIENTS are accepted",
    }
    """The submissions that each stage still accepts, the strictest stage last."""

    def __init__(self, stage: str, depth: int, limit: int, retry_after_ms: int) -> None:
        taken = f"beyond {limit} ({self.SETTINGS[stage]}) {self.TAKEN[stage]}"
        super().__init__(f"{depth} tasks wait; {taken}", retry_after_ms)
        self.stage, self.depth, self.limit = stage, depth, limit


class TooManySubmissions(Overloaded):
    code = "too-many-submissions"

    def __init__(self, client_id: str, retry_after_ms: int, *bucket: int) -> None:
        super().__init__(f"client {client_id!r} submits faster than its limit", retry_after_ms)
        self.client_id, self.bucket = client_id, RateLimitState(*bucket)


class BatchAboveBurst(Refused):
    code = "batch-above-burst"

    def __init__(self, count: int, burst: int) -> None:
        super().__init__(f"{count} new tasks at once; a client may submit at most {burst} (TIDEQ_CLIENT_BURST)")
        self.count, self.burst = count, burst


class KeyPending(Overloaded):
    """An idempotency key is reserved by another submission that is being written."""

    code = "key-pending"

    def __init__(self, name: str, task_id: str, partition: int, is_overdue: int) -> None:
        super().__init__("a batch with the same idempotency key is being written now", 1_000)
        self.name, self.key_task_id, self.partition, self.is_overdue = name, task_id, partition, bool(is_overdue)


class TooManyNew(Refused):
    """One of several partitions received more new tasks than the queue accepts, which may be none.

    Not for callers: it tells what to ask the queue for.
    """

    code = "too-many-new"

    def __init__(self, new_count: int, urgency: int) -> None:
        super().__init__(f"{new_count} tasks are new")
        self.new_count, self.urgency = new_count, urgency
        """How many, and how urgent the least urgent of them."""


class OutboxFull(Overloaded):
    code = "outbox-full"

    def __init__(self, length: int, limit: int, retry_after_ms: int) -> None:
        super().__init__(f"history is {length} entries behind, more than the {limit} allowed", retry_after_ms)
        self.length, self.limit = length, limit


class StoreFull(Overloaded):
    code = "store-full"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__("the store is near its memory limit", retry_after_ms)


class Conflict(QueueError):
    code = "conflict"


class TaskNotFound(Conflict):
    code = "task-not-found"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"no task {task_id} in the store")
        self.task_id = task_id


class WrongState(Conflict):
    code = "wrong-state"

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(f"task {task_id} is {state}")
        self.task_id, self.state = task_id, state


class StaleLease(Conflict):
    code = "stale-lease"

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(f"this lease no longer holds task {task_id}, which is {state}")
        self.task_id, self.state = task_id, state


class UnknownWorker(Conflict):
    code = "unknown-worker"

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"worker {worker_id} is not registered, or was declared dead: register again")
        self.worker_id = worker_id


class WorkerExists(Conflict):
    code = "worker-exists"

    def __init__(self, worker_id: str) -> None:
        super().__init__(f"worker {worker_id} is already registered")
        self.worker_id = worker_id


class Unavailable(QueueError):
    code = "unavailable"


class StoreReplaced(Unavailable):
    code = "store-replaced"

    def __init__(self, found: str) -> None:
        super().__init__(f"the store is in another epoch ({found or 'none'}) than this process works in")
        self.found = found


class StoreFormatUnknown(Unavailable):
    code = "store-format-unknown"

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"the store is written in format {found}, which this version of tideq cannot read: {advice}")
        self.found = found


class StoreUnavailable(Unavailable):
    code = "store-unavailable"

    def __init__(self, message: str, *, is_untouched: bool = False) -> None:
        super().__init__(message)
        self.is_untouched = is_untouched
        """Whether the store certainly did nothing."""


class StoreRefused(StoreUnavailable):
    """The server answers and refuses: a missing permission, a key of another type, a script's error.

    Part of the command may have been done.
    """

    code = "store-refused"

    def __init__(self, message: str, *, is_login: bool = False) -> None:
        super().__init__(message)
        self.is_login = is_login
        """Whether the login was refused, which waiting does not fix."""


class HistoryUnavailable(Unavailable):
    code = "history-unavailable"


class HistoryRefused(HistoryUnavailable):
    """The database answers and refuses: a missing grant, a read-only transaction, a wrong password."""

    code = "history-refused"

    def __init__(self, message: str, *, is_login: bool = False) -> None:
        super().__init__(message)
        self.is_login = is_login
        """Whether the login was refused, which waiting does not fix."""


class TaskUnreadable(Unavailable):
    code = "task-unreadable"

    def __init__(self, task_id: str) -> None:
        super().__init__(f"task {task_id} exists in a form that this version of tideq cannot read")
        self.task_id = task_id


class DurabilityNotReached(Unavailable):
    code = "durability-not-reached"

    def __init__(self, task_id: str, level: str, reached: str) -> None:
        super().__init__(
            f"task {task_id} was accepted but did not reach durability '{level}' in time; it has '{reached}'"
        )
        self.task_id, self.level, self.reached = task_id, level, reached
