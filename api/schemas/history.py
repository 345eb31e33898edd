"""What history tells: lists of tasks, the way a task took, dead letters, what was removed."""

from typing import Annotated

import msgspec

from tideq.api.schemas.base import (
    NULL,
    Count,
    Instant,
    Name,
    Priority,
    Raw,
    RequestSchema,
    ResponseSchema,
    WorkerId,
    about,
)
from tideq.api.schemas.tasks import TaskOut, task_out
from tideq.api.schemas.times import InstantIn, rfc3339
from tideq.persistence.dead_letters.list import DeadLetter, Pattern
from tideq.persistence.read.expired_tasks import Trail
from tideq.persistence.read.tasks import TransitionRow
from tideq.queue_core.states import Reason, TaskState, reason_named, state_named

NextCursor = Annotated[str | None, about("Where the next page begins; null after the last.", None)]
Total = Annotated[
    Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType, about("With `count=true`: how many there are.", 42)
]
PatternName = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z"), about("A way tasks of a type die.", "9f86d081884c7d65")
]
Retriable = Annotated[bool, about("Trying again may help, its worker said.", True)]


class TransitionOut(ResponseSchema, kw_only=True):
    """One step of a task's way."""

    state: Annotated[TaskState, about("Where it came to be.", "executing")]
    at: Instant
    version: Annotated[int, about("Counts its transitions.", 3)]
    reason: Annotated[Reason, about("Why.", "started")]
    worker_id: Annotated[WorkerId | None, about("Whose attempt it was.")]
    attempt: Annotated[int, about("Which attempt it was, from 1 on; 0 before the first.", 1)]
    error: Annotated[Raw, about("What went wrong, where something did.", None, type=["object", "null"])]


class RecordedTaskOut(TaskOut, kw_only=True):
    """A task as it is now, with every transition it made."""

    state_history: list[TransitionOut]
    history_lag_seconds: Annotated[float, about("0 where all of them are told; else how old the missing are.", 0.0)]


class TasksOut(ResponseSchema, kw_only=True):
    """A page of tasks, newest first. It may be short and still have a next one."""

    tasks: list[TaskOut]
    next_cursor: NextCursor
    total: Total = msgspec.UNSET
    total_is_exact: Annotated[bool | msgspec.UnsetType, about("If not, there are at least so many.", True)] = (
        msgspec.UNSET
    )


class DeletedOut(ResponseSchema, kw_only=True):
    """Finished tasks were removed."""

    deleted: Annotated[Count, about("How many.", 1200)]


class DeadLetterOut(TaskOut, kw_only=True):
    """A task that was given up."""

    died_at: Instant
    pattern: PatternName
    message: Annotated[str, about("Its error without what differs from one to the next.", "upstream <host> timed out")]
    retriable: Retriable


class DeadLettersOut(ResponseSchema, kw_only=True):
    """A page of dead letters, the latest death first."""

    tasks: list[DeadLetterOut]
    next_cursor: NextCursor
    total: Total = msgspec.UNSET


class PatternOut(ResponseSchema, kw_only=True):
    """Tasks of one type that died alike."""

    pattern: PatternName
    task_type: Annotated[str, about("What kind of work it is.", "resize")]
    reason: Annotated[Reason, about("Why they were given up.", "retries_exhausted")]
    message: Annotated[str, about("The error without what differs from one to the next.", "upstream <host> timed out")]
    count: Annotated[int, about("How many are dead now.", 12)]
    first_seen: Annotated[Instant, about("When the first ever died so.")]
    last_seen: Annotated[Instant, about("When the last one did.")]
    retriable_count: Annotated[int, about("How many of them trying again may help.", 12)]
    is_new: Annotated[bool, about("First seen within the last 24 hours.", False)]


class PatternsOut(ResponseSchema, kw_only=True):
    """The most frequent first, at most 1 000."""

    patterns: list[PatternOut]


class ReplayFilterIn(RequestSchema, kw_only=True):
    """All that is given must hold; nothing given is every dead letter."""

    task_type: Annotated[Name, about("Of this type.", "resize")] | None = None
    reason: Annotated[Reason, about("Given up for this.", "retries_exhausted")] | None = None
    pattern: PatternName | None = None
    before: Annotated[InstantIn, about("Died before this instant.")] | None = None


class ReplayIn(RequestSchema, kw_only=True):
    """Which dead letters to send back, and how."""

    filter: ReplayFilterIn
    reset_retry_count: Annotated[bool, about("Begin with fresh budgets.", True)] = True
    new_priority: Annotated[Priority, about("Another level than before.")] | None = None
    dry_run: Annotated[bool, about("Only tell how many match.", False)] = False


class ReplayedOut(ResponseSchema, kw_only=True):
    """What matched, and what became of it."""

    matched: Annotated[Count, about("Dead letters that the filter matched.", 12)]
    replayed: Annotated[Count, about("Those sent back; the others were no longer dead, or refused.", 12)]
    refused: Annotated[Count, about("Those that could not be taken: no lane was free, or the rank out of range.", 0)]


def recorded_task_out(task: TaskOut, way: Trail) -> RecordedTaskOut:
    return RecordedTaskOut(
        **msgspec.structs.asdict(task),
        state_history=[_transition_out(each) for each in way.transitions],
        history_lag_seconds=way.lag_ms / 1000,
    )


def dead_letter_out(dead: DeadLetter) -> DeadLetterOut:
    return DeadLetterOut(
        **msgspec.structs.asdict(task_out(dead.task)),
        died_at=rfc3339(dead.died_ms),
        pattern=dead.pattern,
        message=dead.message,
        retriable=dead.retriable,
    )


def pattern_out(found: Pattern) -> PatternOut:
    return PatternOut(
        pattern=found.pattern,
        task_type=found.task_type,
        reason=reason_named(found.reason),
        message=found.message,
        count=found.dead_count,
        first_seen=rfc3339(found.first_seen_ms),
        last_seen=rfc3339(found.last_seen_ms),
        retriable_count=found.retriable_count,
        is_new=found.is_new,
    )


def _transition_out(row: TransitionRow) -> TransitionOut:
    return TransitionOut(
        state=state_named(row.state),
        at=rfc3339(row.at_ms),
        version=row.version,
        reason=reason_named(row.reason),
        worker_id=row.worker_id,
        attempt=row.attempt,
        error=NULL if row.error is None else Raw(row.error.encode()),
    )
