"""A worker's life: joining, asking for work, beating, leaving."""

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
from tideq.api.schemas.held_back import HeldBackIfAny
from tideq.api.schemas.times import rfc3339
from tideq.queue_core.fleet import Word
from tideq.queue_core.task import ClaimedTask
from tideq.queue_core.telemetry.trace_context import execution_traceparent, is_sampled, trace_id_of

Wait = Annotated[
    float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS), about("How long to wait for work where there is none.", 20)
]
PollId = Annotated[
    str,
    msgspec.Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}\Z"),
    about(
        "For an answer that was lost: asked again with it, the same tasks come under the same leases, as far as they "
        "are still as they were handed out.",
        "p-17",
    ),
]
StartsClaimed = Annotated[
    bool, about("Tasks are executing when they are handed out, and are not started. Needs a `poll_id`.", False)
]
STARTING_NEEDS_AN_ID: dict[str, Any] = {
    "if": {"properties": {"start_claimed": {"const": True}}, "required": ["start_claimed"]},
    "then": {"properties": {"poll_id": {"type": "string"}}, "required": ["poll_id"]},
}
CancelledIds = Annotated[list[TaskId], about("Tasks to stop working on.", [])]
ShouldDrain = Annotated[bool, about("An operator wants it to finish what it holds and to leave.", False)]


class RegisterIn(RequestSchema, kw_only=True):
    """What a worker can do."""

    task_types: (
        Annotated[list[Name], msgspec.Meta(min_length=1), about("Left out or null, any type.", ["resize"])] | None
    ) = None
    capabilities: Annotated[list[Name], about("What it has.", ["gpu"])] = msgspec.field(default_factory=list[Name])
    capacity: Annotated[int, msgspec.Meta(ge=1, le=10_000), about("Tasks it can hold at once.", 5)] = 5
    host: Annotated[ShortText, about("Where it runs.", "10.0.0.7")] = ""
    health_port: Annotated[int, msgspec.Meta(ge=1, le=65_535), about("Where it can be probed.", 9100)] | None = None
    version: Annotated[ShortText, about("Of its code.", "1.4.2")] = ""
    name: Annotated[
        str, msgspec.Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,39}\Z"), about("Its id begins with it.", "resizer")
    ] = "worker"


class RegisterOut(ResponseSchema, kw_only=True):
    """The worker is one of the fleet."""

    worker_id: WorkerId
    poll_interval_ms: Annotated[int, about("How often to poll, for one that does not wait.", 1000)]
    heartbeat_interval_ms: Annotated[int, about("How often to beat; polling counts.", 30_000)]
    queue: Annotated[str, about("The queue it works for.", "default")]
    can_start_claimed: Annotated[
        bool, about("Whether `start_claimed` is heeded: not where there are partitions.", True)
    ]


class PollIn(RequestSchema, kw_only=True):
    """How much work, and for how long to wait for it."""

    available_capacity: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Most tasks to be given.", 3)] = 1
    wait_seconds: Wait = 0
    poll_id: PollId | None = None
    start_claimed: StartsClaimed = False
    capabilities: Annotated[list[Name], about("Just now, where not as registered.")] | None = None

    also: ClassVar[dict[str, Any]] = STARTING_NEEDS_AN_ID


class ClaimedOut(ResponseSchema, kw_only=True):
    """A task handed to the worker, which must start it before it becomes visible again, unless it is executing."""

    task_id: TaskId
    task_type: TaskType
    parameters: Annotated[JsonObject, about("As they were submitted.", {"width": 640})]
    attempt: Annotated[int, about("Counts its claims.", 1)]
    retry_count: Annotated[Count, about("Executions before that failed or took too long; left out for 0.", 1)] | (
        msgspec.UnsetType
    ) = msgspec.UNSET
    losses: Annotated[Count, about("Executions before whose worker died; left out for 0.", 1)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    lease: Lease
    timeout_seconds: Annotated[float, about("How long the execution may take.", 300.0)]
    status: Annotated[
        Literal["assigned", "executing"], about("Executing where the poll had `start_claimed`.", "assigned")
    ]
    visible_at: Annotated[Instant, about("When it goes to another worker: if not started, or if not done.")]
    trace_id: TraceId
    traceparent: Annotated[
        str | None, about("To go on with its trace.", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    ]
    tracestate: Annotated[str, about("As it was submitted.", "vendor=00f067aa0ba902b7")] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    baggage: Annotated[str, about("As it was submitted.", "tenant=c-118")] | msgspec.UnsetType = msgspec.UNSET


class PollOut(ResponseSchema, kw_only=True):
    """Work, if there was any in time, and what to stop."""

    tasks: list[ClaimedOut]
    cancel: CancelledIds
    should_drain: ShouldDrain
    held_back: HeldBackIfAny = msgspec.UNSET


class HeartbeatIn(RequestSchema, kw_only=True):
    """How the worker is. What is left out stands as it was said last."""

    current_load: Annotated[int, msgspec.Meta(ge=0, le=1_000_000), about("Tasks it works on.", 3)] | None = None
    status: (
        Annotated[
            Word,
            about(
                "As it sees itself. `draining` and `unhealthy`: no new work until it says `active`, and what it holds "
                "stays its own. An operator's drain is not undone by it.",
                "active",
            ),
        ]
        | None
    ) = None
    health: Annotated[
        dict[str, float | int | str | bool | None],
        about("Whatever it measures, at most 4 KiB.", {"memory_usage_percent": 41.5, "cpu_usage_percent": 12}),
    ] = msgspec.field(default_factory=dict[str, float | int | str | bool | None])


class HeartbeatOut(ResponseSchema, kw_only=True):
    """The worker counts as alive; this is what it should know."""

    acknowledged: Annotated[bool, about("It was taken.", True)] = True
    should_drain: ShouldDrain
    cancel: CancelledIds
    held_back: HeldBackIfAny = msgspec.UNSET


class DeregisteredOut(ResponseSchema, kw_only=True):
    """The worker is no longer of the fleet."""

    released: Annotated[Count, about("Tasks it held, handed back free of charge.", 2)]


def claimed_out(task: ClaimedTask, *, is_traced: bool) -> ClaimedOut:
    """Where the task's life is traced, what the worker adds belongs to this attempt's execution."""
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
