"""Responses from history: lists of tasks, a task's transitions, dead letters, clean-ups."""

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
from tideq.persistence.dead_letters.dead_letter_list import DeadLetter, Pattern
from tideq.persistence.read.expired_tasks import Trail
from tideq.persistence.read.tasks import TransitionRow
from tideq.queue_core.states import Reason, TaskState, reason_named, state_named

NextCursor = Annotated[str | None, about("Cursor of the next page; null on the last.", None)]
Total = Annotated[Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType, about("Total number, with `count=true`.", 42)]
PatternName = Annotated[
    str,
    msgspec.Meta(pattern=r"^[0-9a-f]{16}\Z"),
    about("Id of a group of dead letters with the same type, reason and error.", "9f86d081884c7d65"),
]
Retriable = Annotated[bool, about("Whether the worker reported that a retry may succeed.", True)]


class TransitionOut(ResponseSchema, kw_only=True):
    """One transition of a task."""

    state: Annotated[TaskState, about("State after the transition.", "executing")]
    at: Instant
    version: Annotated[int, about("Number of the transition.", 3)]
    reason: Annotated[Reason, about("Reason of the transition.", "started")]
    worker_id: Annotated[WorkerId | None, about("Worker of the attempt.")]
    attempt: Annotated[int, about("Number of the attempt, from 1; 0 before the first.", 1)]
    error: Annotated[Raw, about("Error of the attempt, if it failed.", None, type=["object", "null"])]


class RecordedTaskOut(TaskOut, kw_only=True):
    """A task as it is now, with all its transitions."""

    state_history: list[TransitionOut]
    history_lag_seconds: Annotated[
        float, about("0 if all transitions are listed, else the age of the oldest missing one.", 0.0)
    ]


class TasksOut(ResponseSchema, kw_only=True):
    """A page of tasks, newest first. A page may be short and still have a next one."""

    tasks: list[TaskOut]
    next_cursor: NextCursor
    total: Total = msgspec.UNSET
    total_is_exact: Annotated[bool | msgspec.UnsetType, about("If false, `total` is a lower bound.", True)] = (
        msgspec.UNSET
    )


class DeletedOut(ResponseSchema, kw_only=True):
    """Finished tasks were removed."""

    deleted: Annotated[Count, about("Number of tasks removed.", 1200)]


class DeadLetterOut(TaskOut, kw_only=True):
    """A dead letter."""

    died_at: Instant
    pattern: PatternName
    message: Annotated[str, about("The error with its variable parts replaced.", "upstream <host> timed out")]
    retriable: Retriable


class DeadLettersOut(ResponseSchema, kw_only=True):
    """A page of dead letters, the most recent first."""

    tasks: list[DeadLetterOut]
    next_cursor: NextCursor
    total: Total = msgspec.UNSET


class PatternOut(ResponseSchema, kw_only=True):
    """Dead letters with the same type, reason and error."""

    pattern: PatternName
    task_type: Annotated[str, about("Type of the tasks.", "resize")]
    reason: Annotated[Reason, about("Reason of the dead letters.", "retries_exhausted")]
    message: Annotated[str, about("The error with its variable parts replaced.", "upstream <host> timed out")]
    count: Annotated[int, about("Current number of dead letters.", 12)]
    first_seen: Annotated[Instant, about("Time of the first dead letter ever with this pattern.")]
    last_seen: Annotated[Instant, about("Time of the latest one.")]
    retriable_count: Annotated[int, about("Dead letters for which a retry may succeed.", 12)]
    is_new: Annotated[bool, about("First seen within the last 24 hours.", False)]


class PatternsOut(ResponseSchema, kw_only=True):
    """The most frequent patterns first, at most 1 000."""

    patterns: list[PatternOut]


class ReplayFilterIn(RequestSchema, kw_only=True):
    """All given conditions must hold; an empty filter matches every dead letter."""

    task_type: Annotated[Name, about("Tasks of this type.", "resize")] | None = None
    reason: Annotated[Reason, about("Dead letters with this reason.", "retries_exhausted")] | None = None
    pattern: PatternName | None = None
    before: Annotated[InstantIn, about("Dead letters older than this instant.")] | None = None


class ReplayIn(RequestSchema, kw_only=True):
    """Which dead letters to replay, and how."""

    filter: ReplayFilterIn
    reset_retry_count: Annotated[bool, about("Reset the retry, loss and delivery counts.", True)] = True
    new_priority: Annotated[Priority, about("New priority; without it the old one stays.")] | None = None
    dry_run: Annotated[bool, about("Only count the matching dead letters.", False)] = False


class ReplayedOut(ResponseSchema, kw_only=True):
    """The outcome of a bulk replay."""

    matched: Annotated[Count, about("Dead letters that the filter matched.", 12)]
    replayed: Annotated[Count, about("Tasks replayed; the others were no longer dead letters, or refused.", 12)]
    refused: Annotated[Count, about("Tasks refused: no lane was free, or the rank was out of range.", 0)]


def recorded_task_out(task: TaskOut, trail: Trail) -> RecordedTaskOut:
    return RecordedTaskOut(
        **msgspec.structs.asdict(task),
        state_history=[_transition_out(each) for each in trail.transitions],
        history_lag_seconds=trail.lag_ms / 1000,
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
