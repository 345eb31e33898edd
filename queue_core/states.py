"""States of a task, and the reasons for its last transition.

State and reason are separate because several reasons lead to one state: a lost worker and a retried error both lead to
`queued`. Both are persisted as words, in the task record and in history: add members freely, never rename one.
"""

from enum import StrEnum
from typing import cast


class TaskState(StrEnum):
    QUEUED = "queued"
    """Waiting: ready to be claimed, or hidden until a retry, a delay or a `run_at` falls due."""

    ASSIGNED = "assigned"
    """Claimed by a worker that has not reported its start yet."""

    EXECUTING = "executing"
    """Started by the worker that holds the lease; must end before its execution deadline."""

    COMPLETED = "completed"
    """Ended with a result. No transition leaves this state."""

    FAILED = "failed"
    """Ended with an error that its worker reported as not retriable."""

    CANCELLED = "cancelled"
    """Cancelled before it ended."""

    DEAD_LETTER = "dead_letter"
    """Given up because one of its three budgets is spent, or on its worker's request. Listed for operators."""


class Reason(StrEnum):
    SUBMITTED = "submitted"
    """A producer submitted it."""

    CLAIMED = "claimed"
    """A worker claimed it."""

    STARTED = "started"
    """Its worker reported the start, or claimed it as started."""

    SUCCEEDED = "succeeded"
    """Its worker reported a result."""

    ERROR = "error"
    """Its worker reported a retriable error; the task waits out its backoff."""

    NOT_RETRIABLE = "not_retriable"
    """Its worker reported an error that a retry cannot fix."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    """The task failed or timed out once more than `max_retries` allows."""

    TIMED_OUT = "timed_out"
    """Its execution deadline passed without a result."""

    ASSIGNMENT_LAPSED = "assignment_lapsed"
    """The assignment timeout passed without a start: the worker was lost, or the claim reply never arrived."""

    NEVER_STARTED = "never_started"
    """Assigned too often without ever being started."""

    WORKER_LOST = "worker_lost"
    """Its worker stopped sending heartbeats while executing it."""

    POISON = "poison"
    """Too many workers died while executing it."""

    RELEASED = "released"
    """Its worker released it unfinished; the task keeps its rank and its budgets."""

    CANCELLED = "cancelled"
    """A client or operator cancelled it."""

    DISCARDED = "discarded"
    """Its worker made it a dead letter on purpose."""

    RETRIED = "retried"
    """A client or operator retried it."""

    REPLAYED = "replayed"
    """A client or operator replayed it from the dead letters."""

    PURGED = "purged"
    """A client or operator removed it after it had ended."""


STATES = {state.value: state for state in TaskState}
REASONS = {reason.value: reason for reason in Reason} | {"": Reason.SUBMITTED}


def state_named(word: str) -> TaskState:
    """Returns the member. A word of a later version is returned unchanged and equals no member."""
    return STATES.get(word) or cast("TaskState", word)


def reason_named(word: str) -> Reason:
    """Like `state_named`; an empty word is `submitted`."""
    return REASONS.get(word) or cast("Reason", word)
