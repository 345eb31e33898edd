"""A worker's reports on the tasks it holds, one by one or all in one `sync`."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from tideq.api.edge.problems import Problem
from tideq.api.schemas.base import NULL, AnyJson, Instant, Lease, RequestSchema, ResponseSchema, about
from tideq.api.schemas.blocked_types import BlockedTypesIfAny
from tideq.api.schemas.workers import (
    STARTING_NEEDS_AN_ID,
    CancelledIds,
    ClaimedOut,
    PollId,
    ShouldDrain,
    StartsClaimed,
    Wait,
)

HeldId = Annotated[str, about("The task's id.", "0195546e-3c7a-7d21-9f04-00a1b2c3d4e5")]


class HeldIn(RequestSchema, kw_only=True):
    """A held task and its lease."""

    task_id: HeldId
    lease: Lease


class ExtendIn(HeldIn, kw_only=True):
    """A request for more time for a task."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=4e9), about("New execution time, counted from now.", 60)]


class ProgressIn(HeldIn, kw_only=True):
    """The progress of a task."""

    progress_percent: Annotated[float, msgspec.Meta(ge=0, le=100), about("0 to 100.", 45)]
    status_message: Annotated[str, msgspec.Meta(max_length=1000), about("Text shown to people.", "12 of 27 pages")] = ""
    sequence: (
        Annotated[
            int,
            msgspec.Meta(ge=0, le=2**53 - 2),
            about("Orders reports: one with a lower number than the last is ignored. By default the percent."),
        ]
        | None
    ) = None


class TaskErrorIn(RequestSchema, kw_only=True):
    """The error of a failed attempt."""

    message: Annotated[str, about("Error text for people.", "upstream timed out")]
    code: Annotated[
        str, about("Error code for programs; some codes change the retry delay.", "TEMPORARY_UNAVAILABLE")
    ] = ""
    retriable: Annotated[bool, about("Whether a retry may succeed.", True)] = True
    details: Annotated[
        AnyJson,
        about(
            "Any other data. With `retry_requested: true` the failure does not count for the worker's circuit.",
            {"host": "10.0.0.7"},
            default=None,
        ),
    ] = msgspec.field(default_factory=lambda: NULL)


class ResultIn(HeldIn, kw_only=True):
    """The outcome of an attempt."""

    status: Annotated[
        Literal["completed", "failed", "discarded"],
        about("Completed with a result, failed with an error, or discarded: a dead letter at once.", "completed"),
    ]
    result: Annotated[AnyJson, about("Stored byte for byte.", {"pages": 27}, default=None)] = msgspec.field(
        default_factory=lambda: NULL
    )
    error: Annotated[TaskErrorIn | None, about("The error; required unless completed.", None)] = None
    execution_duration_seconds: Annotated[float | None, about("Duration measured by the worker.", 3.2)] = None

    also: ClassVar[dict[str, Any]] = {
        "if": {"properties": {"status": {"enum": ["failed", "discarded"]}}, "required": ["status"]},
        "then": {"properties": {"error": {"type": "object"}}, "required": ["error"]},
    }


class AcknowledgedOut(ResponseSchema, kw_only=True):
    """The report was accepted."""

    acknowledged: Annotated[bool, about("The report was accepted.", True)] = True
    visible_at: Annotated[Instant | None, about("The new deadline, if it changed.")] = None
    status: Annotated[str | None, about("The task's state after a result.", None)] = None


class SyncIn(RequestSchema, kw_only=True):
    """All reports of a worker and a poll for new tasks; each list is processed in its order."""

    starts: Annotated[list[HeldIn], msgspec.Meta(max_length=1000), about("Tasks started.")] = msgspec.field(
        default_factory=list
    )
    results: Annotated[list[ResultIn], msgspec.Meta(max_length=1000), about("Results and errors.")] = msgspec.field(
        default_factory=list
    )
    progress: Annotated[list[ProgressIn], msgspec.Meta(max_length=1000), about("Progress of tasks.")] = msgspec.field(
        default_factory=list
    )
    extends: Annotated[list[ExtendIn], msgspec.Meta(max_length=1000), about("Tasks that need more time.")] = (
        msgspec.field(default_factory=list)
    )
    releases: Annotated[list[HeldIn], msgspec.Meta(max_length=1000), about("Tasks to hand back.")] = msgspec.field(
        default_factory=list
    )
    available_capacity: Annotated[int, msgspec.Meta(ge=0, le=1000), about("Most tasks to claim; 0 claims none.", 3)] = 0
    wait_seconds: Wait = 0
    poll_id: PollId | None = None
    start_claimed: StartsClaimed = False

    also: ClassVar[dict[str, Any]] = STARTING_NEEDS_AN_ID


class OutcomeOut(ResponseSchema, kw_only=True):
    """The outcome of one report."""

    task_id: HeldId
    ok: Annotated[bool, about("The report was accepted.", True)]
    status: Annotated[str, about("The task's state after a failed attempt.", "queued")] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    problem: Annotated[Problem, about("Why the report was refused.")] | msgspec.UnsetType = msgspec.UNSET


class SyncOut(ResponseSchema, kw_only=True):
    """Outcomes in the order starts, progress, extends, results, releases; the other fields as in a poll's response."""

    outcomes: list[OutcomeOut]
    tasks: list[ClaimedOut]
    cancel: CancelledIds
    should_drain: ShouldDrain
    blocked_types: BlockedTypesIfAny = msgspec.UNSET
