"""What a worker says about the tasks it holds, one by one or all in one `sync`."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from tideq.api.edge.problems import Problem
from tideq.api.schemas.base import NULL, AnyJson, Instant, Lease, RequestSchema, ResponseSchema, about
from tideq.api.schemas.held_back import HeldBackIfAny
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
    """A task and the proof of holding it."""

    task_id: HeldId
    lease: Lease


class ExtendIn(HeldIn, kw_only=True):
    """More time for a task."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=4e9), about("From now on.", 60)]


class ProgressIn(HeldIn, kw_only=True):
    """How far a task has come."""

    progress_percent: Annotated[float, msgspec.Meta(ge=0, le=100), about("0 to 100.", 45)]
    status_message: Annotated[str, msgspec.Meta(max_length=1000), about("For people.", "12 of 27 pages")] = ""
    sequence: (
        Annotated[
            int,
            msgspec.Meta(ge=0, le=2**53 - 2),
            about("An earlier one that comes late is ignored; by default the percent."),
        ]
        | None
    ) = None


class TaskErrorIn(RequestSchema, kw_only=True):
    """What went wrong."""

    message: Annotated[str, about("For people.", "upstream timed out")]
    code: Annotated[str, about("For programs; some codes change the delay.", "TEMPORARY_UNAVAILABLE")] = ""
    retriable: Annotated[bool, about("Whether trying again may help.", True)] = True
    details: Annotated[
        AnyJson,
        about("Anything else; `asked_for: true` spares the worker's circuit.", {"host": "10.0.0.7"}, default=None),
    ] = msgspec.field(default_factory=lambda: NULL)


class ResultIn(HeldIn, kw_only=True):
    """How a task ended."""

    status: Annotated[
        Literal["completed", "failed", "discarded"],
        about("With a result, with an error, or given up for good: a dead letter at once.", "completed"),
    ]
    result: Annotated[AnyJson, about("Kept byte for byte as it came.", {"pages": 27}, default=None)] = msgspec.field(
        default_factory=lambda: NULL
    )
    error: Annotated[TaskErrorIn | None, about("Why; needed unless completed.", None)] = None
    execution_duration_seconds: Annotated[float | None, about("As the worker measured it.", 3.2)] = None

    also: ClassVar[dict[str, Any]] = {
        "if": {"properties": {"status": {"enum": ["failed", "discarded"]}}, "required": ["status"]},
        "then": {"properties": {"error": {"type": "object"}}, "required": ["error"]},
    }


class AcknowledgedOut(ResponseSchema, kw_only=True):
    """It was taken."""

    acknowledged: Annotated[bool, about("It was taken.", True)] = True
    visible_at: Annotated[Instant | None, about("The new deadline, where it was moved.")] = None
    status: Annotated[str | None, about("The state a result led to.", None)] = None


class SyncIn(RequestSchema, kw_only=True):
    """Everything a worker has to say, and how much work it wants; each list is done in the order given."""

    starts: Annotated[list[HeldIn], msgspec.Meta(max_length=1000), about("Begun.")] = msgspec.field(
        default_factory=list
    )
    results: Annotated[list[ResultIn], msgspec.Meta(max_length=1000), about("Ended.")] = msgspec.field(
        default_factory=list
    )
    progress: Annotated[list[ProgressIn], msgspec.Meta(max_length=1000), about("Under way.")] = msgspec.field(
        default_factory=list
    )
    extends: Annotated[list[ExtendIn], msgspec.Meta(max_length=1000), about("More time.")] = msgspec.field(
        default_factory=list
    )
    releases: Annotated[list[HeldIn], msgspec.Meta(max_length=1000), about("Handed back.")] = msgspec.field(
        default_factory=list
    )
    available_capacity: Annotated[int, msgspec.Meta(ge=0, le=1000), about("0 asks for no work.", 3)] = 0
    wait_seconds: Wait = 0
    poll_id: PollId | None = None
    start_claimed: StartsClaimed = False

    also: ClassVar[dict[str, Any]] = STARTING_NEEDS_AN_ID


class OutcomeOut(ResponseSchema, kw_only=True):
    """What became of one thing that was said."""

    task_id: HeldId
    ok: Annotated[bool, about("It was taken.", True)]
    status: Annotated[str, about("Where a failed attempt led to.", "queued")] | msgspec.UnsetType = msgspec.UNSET
    problem: Annotated[Problem, about("Why not.")] | msgspec.UnsetType = msgspec.UNSET


class SyncOut(ResponseSchema, kw_only=True):
    """Outcomes in the order starts, progress, extends, results, releases; then as a poll answers."""

    outcomes: list[OutcomeOut]
    tasks: list[ClaimedOut]
    cancel: CancelledIds
    should_drain: ShouldDrain
    held_back: HeldBackIfAny = msgspec.UNSET
