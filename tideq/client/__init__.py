"""TideQ's client: `Client` for blocking code, `AsyncClient` for asynchronous code, otherwise the same.

It runs in the application's process and uses HTTP only. `tideq.client.bulk` takes tasks from the queue without a worker
runtime; `tideq.workers` is the worker runtime.
"""

from tideq.client._async.client import AsyncClient
from tideq.client._async.events import AsyncEventStream
from tideq.client._async.queue import AsyncListing
from tideq.client._sync.client import Client
from tideq.client._sync.events import EventStream
from tideq.client._sync.queue import Listing
from tideq.client.calls.events import Event, Gap, Transition
from tideq.client.config import Timeouts
from tideq.client.errors import (
    BadAnswer,
    CannotConnect,
    Conflict,
    DurabilityNotReached,
    FieldProblem,
    Forbidden,
    IdempotencyConflict,
    InvalidRequest,
    NoAnswer,
    NotAllMarked,
    NotFound,
    NotHeld,
    PayloadTooLarge,
    Problem,
    Refusal,
    ServerError,
    StaleLease,
    TideqError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownWorker,
    UntrustedServer,
)
from tideq.client.models.dead_letters import DeadLetter, Pattern, Replayed
from tideq.client.models.queue import BlockedType, Drained, Limit, QueueStats, WorkerInfo
from tideq.client.models.tasks import (
    Backoff,
    Cancelled,
    Explanation,
    NewTask,
    Page,
    Progress,
    Retried,
    StateChange,
    Submitted,
    Task,
    TaskError,
)
from tideq.client.retrying import NO_RETRIES, RetryPolicy

__all__ = [
    "NO_RETRIES",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncListing",
    "Backoff",
    "BadAnswer",
    "BlockedType",
    "Cancelled",
    "CannotConnect",
    "Client",
    "Conflict",
    "DeadLetter",
    "Drained",
    "DurabilityNotReached",
    "Event",
    "EventStream",
    "Explanation",
    "FieldProblem",
    "Forbidden",
    "Gap",
    "IdempotencyConflict",
    "InvalidRequest",
    "Limit",
    "Listing",
    "NewTask",
    "NoAnswer",
    "NotAllMarked",
    "NotFound",
    "NotHeld",
    "Page",
    "Pattern",
    "PayloadTooLarge",
    "Problem",
    "Progress",
    "QueueStats",
    "Refusal",
    "Replayed",
    "Retried",
    "RetryPolicy",
    "ServerError",
    "StaleLease",
    "StateChange",
    "Submitted",
    "Task",
    "TaskError",
    "TideqError",
    "Timeouts",
    "TooManyRequests",
    "Transition",
    "Unauthorized",
    "Unavailable",
    "UnknownWorker",
    "UntrustedServer",
    "WorkerInfo",
]
