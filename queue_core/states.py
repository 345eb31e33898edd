"""Where a task can be, and why it came to be there.

*Where* is a `TaskState`; *why* is a `Reason`. They are kept apart because several reasons lead to one
state: a lost worker and an elapsed backoff both end in `queued`. Both are stored as their words, in the
task record and in history: add members freely, never rename one.
"""

from enum import StrEnum
from typing import cast


class TaskState(StrEnum):
    QUEUED = "queued"
    """Waiting: ready to be claimed, or hidden until a retry, a delay or a `run_at` falls due."""

    ASSIGNED = "assigned"
    """Handed to a worker that has not yet said it started."""

    EXECUTING = "executing"
    """Started by the worker that holds the lease; must finish before its deadline."""

    COMPLETED = "completed"
    """Finished with a result. Nothing moves it again."""

    FAILED = "failed"
    """Failed with an error its worker called not retriable."""

    CANCELLED = "cancelled"
    """Called off before it finished."""

    DEAD_LETTER = "dead_letter"
    """Given up: one of its three budgets is spent. Kept apart for a person to look at."""


class Reason(StrEnum):
    SUBMITTED = "submitted"
    """A producer handed it in."""

    CLAIMED = "claimed"
    """A worker took it."""

    STARTED = "started"
    """Its worker began the work, or was given it to begin at once."""

    SUCCEEDED = "succeeded"
    """Its worker delivered a result."""

    ERROR = "error"
    """Its worker reported an error that may go away; it waits out a backoff."""

    NOT_RETRIABLE = "not_retriable"
    """Its worker reported an error that trying again cannot mend."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    """It failed or timed out once more than `max_retries` allows."""

    TIMED_OUT = "timed_out"
    """Its execution deadline passed without a result."""

    ASSIGNMENT_LAPSED = "assignment_lapsed"
    """It was handed out and never started: the worker vanished, or the answer never reached it."""

    NEVER_STARTED = "never_started"
    """Handed out again and again, never once started."""

    WORKER_LOST = "worker_lost"
    """Its worker stopped sending heartbeats while executing it."""

    POISON = "poison"
    """Every worker that executed it died."""

    RELEASED = "released"
    """Its worker handed it back unfinished; it keeps its place and pays nothing."""

    CANCELLED = "cancelled"
    """Someone asked for it to be called off."""

    DISCARDED = "discarded"
    """Its worker gave it up for good and asked for a dead letter."""

    RETRIED = "retried"
    """A person asked for it to run again."""

    REPLAYED = "replayed"
    """A person sent a dead letter back to the queue."""

    PURGED = "purged"
    """A person removed it, finished as it was."""


STATES = {state.value: state for state in TaskState}
REASONS = {reason.value: reason for reason in Reason} | {"": Reason.SUBMITTED}


def state_named(word: str) -> TaskState:
    """The member; a word that only a later version knows is passed on as it is, and equals no member."""
    return STATES.get(word) or cast("TaskState", word)


def reason_named(word: str) -> Reason:
    """As `state_named`; empty is submitted."""
    return REASONS.get(word) or cast("Reason", word)
