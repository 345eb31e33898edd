"""Worker registration, polls, heartbeats and deregistration."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from tideq.api.schemas.base import (
    MAX_WAIT_SECONDS,
    Count,
    Instant,
    JsonObject,
    Lease,
    Name,
    Raw,
    RequestSchema,
    ResponseSchema,
    ShortText,
    TaskId,
    TaskType,
    TraceId,
    WorkerId,
    about,
)
from tideq.api.schemas.blocked_types import BlockedTypesIfAny
from tideq.api.schemas.times import rfc3339
from tideq.queue_core.task import ClaimedTask
from tideq.queue_core.telemetry.trace_context import execution_traceparent, is_sampled, trace_id_of
from tideq.queue_core.worker_calls import ReportedState

Wait = Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS), about("How long to wait if no task is ready.", 20)]
PollId = Annotated[
    str,
    msgspec.Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}\Z"),
    about(
        "Makes the poll repeatable if its response is lost: a poll with the same id returns the same tasks and leases, "
        "as far as the tasks have not changed since.",
        "p-17",
    ),
]
StartsClaimed = Annotated[
    bool, about("Claimed tasks are started at once, without a call to `start`. Needs a `poll_id`.", False)
]
STARTING_NEEDS_AN_ID: dict[str, Any] = {
    "if": {"properties": {"start_claimed": {"const": True}}, "required": ["start_claimed"]},
    "then": {"properties": {"poll_id": {"type": "string"}}, "required": ["poll_id"]},
}
CancelledIds = Annotated[list[TaskId], about("Tasks to stop working on.", [])]
ShouldDrain = Annotated[
    bool, about("An operator drains the worker: it should finish the tasks it holds and deregister.", False)
]


class RegisterIn(RequestSchema, kw_only=True):
    """A new worker."""

    task_types: (
        Annotated[
            list[Name], msgspec.Meta(min_length=1), about("Types the worker handles; null for all types.", ["resize"])
        ]
        | None
    ) = None
    capabilities: Annotated[list[Name], about("Capabilities of the worker.", ["gpu"])] = msgspec.field(
        default_factory=list[Name]
    )
    capacity: Annotated[int, msgspec.Meta(ge=1, le=10_000), about("Tasks the worker can hold at once.", 5)] = 5
    host: Annotated[ShortText, about("Host of the worker.", "10.0.0.7")] = ""
    health_port: (
        Annotated[int, msgspec.Meta(ge=1, le=65_535), about("Port of the worker's health page.", 9100)] | None
    ) = None
    version: Annotated[ShortText, about("Version of the worker's code.", "1.4.2")] = ""
    name: Annotated[
        str,
        msgspec.Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,39}\Z"),
        about("Name of the worker; its id begins with it.", "resizer"),
    ] = "worker"


class RegisterOut(ResponseSchema, kw_only=True):
    """The worker is registered."""

    worker_id: WorkerId
    poll_interval_ms: Annotated[int, about("Interval between polls without `wait_seconds`.", 1000)]
    heartbeat_interval_ms: Annotated[int, about("Interval between heartbeats; polls count as heartbeats.", 30_000)]
    queue: Annotated[str, about("Name of the queue.", "default")]
    can_start_claimed: Annotated[
        bool, about("Whether `start_claimed` has an effect: not with several partitions.", True)
    ]


class PollIn(RequestSchema, kw_only=True):
    """A request for tasks."""

    available_capacity: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Most tasks to claim.", 3)] = 1
    wait_seconds: Wait = 0
    poll_id: PollId | None = None
    start_claimed: StartsClaimed = False
    capabilities: Annotated[list[Name], about("Capabilities for this poll; by default those registered.")] | None = None

    also: ClassVar[dict[str, Any]] = STARTING_NEEDS_AN_ID


class ClaimedOut(ResponseSchema, kw_only=True):
    """A claimed task. The worker must start it before `visible_at`, unless it is already executing."""

    task_id: TaskId
    task_type: TaskType
    parameters: Annotated[JsonObject, about("Parameters as submitted.", {"width": 640})]
    attempt: Annotated[int, about("Number of this claim.", 1)]
    retry_count: Annotated[Count, about("Earlier executions that failed or timed out; left out for 0.", 1)] | (
        msgspec.UnsetType
    ) = msgspec.UNSET
    losses: Annotated[Count, about("Earlier executions whose worker died; left out for 0.", 1)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    lease: Lease
    timeout_seconds: Annotated[float, about("Longest time of this execution.", 300.0)]
    status: Annotated[
        Literal["assigned", "executing"], about("`executing` if the poll had `start_claimed`.", "assigned")
    ]
    visible_at: Annotated[
        Instant, about("When the task goes to another worker, if not started or not completed by then.")
    ]
    trace_id: TraceId
    traceparent: Annotated[
        str | None,
        about("Parent for the worker's spans.", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ]
    tracestate: Annotated[str, about("As submitted.", "vendor=00f067aa0ba902b7")] | msgspec.UnsetType = msgspec.UNSET
    baggage: Annotated[str, about("As submitted.", "tenant=c-118")] | msgspec.UnsetType = msgspec.UNSET


class PollOut(ResponseSchema, kw_only=True):
    """Claimed tasks, if there were any in time, and tasks to stop."""

    tasks: list[ClaimedOut]
    cancel: CancelledIds
    should_drain: ShouldDrain
    blocked_types: BlockedTypesIfAny = msgspec.UNSET


class HeartbeatIn(RequestSchema, kw_only=True):
    """The worker's condition. Fields left out keep their last value."""

    current_load: (
        Annotated[int, msgspec.Meta(ge=0, le=1_000_000), about("Tasks the worker is executing.", 3)] | None
    ) = None
    status: (
        Annotated[
            ReportedState,
            about(
                "Status reported by the worker. With `draining` or `unhealthy` it gets no new tasks until it reports "
                "`active`, and keeps the tasks it holds. `active` does not end an operator's drain.",
                "active",
            ),
        ]
        | None
    ) = None
    health: Annotated[
        dict[str, float | int | str | bool | None],
        about("Any measured values, at most 4 KiB.", {"memory_usage_percent": 41.5, "cpu_usage_percent": 12}),
    ] = msgspec.field(default_factory=dict[str, float | int | str | bool | None])


class HeartbeatOut(ResponseSchema, kw_only=True):
    """The worker counts as alive."""

    acknowledged: Annotated[bool, about("The heartbeat was accepted.", True)] = True
    should_drain: ShouldDrain
    cancel: CancelledIds
    blocked_types: BlockedTypesIfAny = msgspec.UNSET


class DeregisteredOut(ResponseSchema, kw_only=True):
    """The worker is deregistered."""

    released: Annotated[Count, about("Tasks it held, handed back without counting against a limit.", 2)]


def claimed_out(task: ClaimedTask, *, is_traced: bool) -> ClaimedOut:
    """With tracing on, `traceparent` names this attempt's execution span, the parent of the worker's spans."""
    trace = task.definition.trace
    traceparent = trace.traceparent if trace else None
    if is_traced and traceparent and is_sampled(traceparent):
        traceparent = execution_traceparent(traceparent, task.task_id, task.attempt)
    return ClaimedOut(
        task_id=task.task_id,
        task_type=task.definition.task_type,
        parameters=Raw(task.definition.parameters),
        attempt=task.attempt,
        retry_count=task.retry_count or msgspec.UNSET,
        losses=task.losses or msgspec.UNSET,
        lease=task.lease,
        timeout_seconds=task.timeout_ms / 1000,
        status="executing" if task.is_started else "assigned",
        visible_at=rfc3339(task.visible_at_ms),
        trace_id=trace_id_of(task.task_id, traceparent),
        traceparent=traceparent,
        tracestate=(trace and trace.tracestate) or msgspec.UNSET,
        baggage=(trace and trace.baggage) or msgspec.UNSET,
    )
