"""A poll and what it sees: who asks for work, and what one partition would give."""

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tideq.queue_core.errors import InvalidRequest
from tideq.queue_core.task import Stop
from tideq.queue_core.validation import MAX_BATCH

AS_DECLARED = "*"


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    poll_id: str = ""
    assignment_ms: int | None = None
    capabilities: str = AS_DECLARED
    starts: bool = False
    """Tasks are executing when they are handed out."""
    circuit_shares: str = ""
    """What the worker's circuits leave, where that was decided over several partitions."""
    token: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    """What the leases of one claim share, in one partition."""


class Head(NamedTuple):
    """A ready task; they go in this order."""

    rank: int
    task_id: str
    task_type: str = ""
    """Told where pauses, limits or circuits are in force."""


class Use(NamedTuple):
    """How much of one limit one partition has in use, as `usage.lua` tells it."""

    scope: str
    rate: str
    most: str
    """These two as they were set for the whole queue; '-' for none."""
    running: int
    taken: int
    refunded: int


class CircuitResults(NamedTuple):
    """How one partition has one of the worker's circuits, as `standing.lua` tells it."""

    task_type: str
    kind: str
    """`open`, `trial`, or `failing` where a task of the type failed lately."""
    amount: int
    """Until when it is open; how many trials ended well."""
    held: int
    good: int
    bad: int


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition would give, the best first, and all that a claim says besides."""

    now_ms: int
    retry_at_ms: int | None
    worker_status: str
    should_drain: bool
    profile: str
    stops: tuple[Stop, ...]
    answer: int
    """The number of the last answer to this poll id here, 0 for none."""
    live_count: int
    """How many tasks of that answer are still assigned under its lease."""
    heads: tuple[Head, ...]
    uses: tuple[Use, ...] = ()
    standings: tuple[CircuitResults, ...] = ()
    is_suspect: bool = False
    """Whether a task of the worker failed lately in a partition that may not be among those looked at."""


def make_poll(
    worker_id: str,
    wanted: int,
    poll_id: str,
    assignment_ms: int | None,
    capabilities: Sequence[str] | None,
    *,
    starts: bool = False,
) -> Poll:
    if not 1 <= wanted <= MAX_BATCH:
        raise InvalidRequest("available_capacity", f"{wanted} lies outside 1 … {MAX_BATCH}")
    if assignment_ms is not None and not 0 < assignment_ms < 2**42:
        raise InvalidRequest("assignment_ms", "an assignment takes a positive time")
    present = AS_DECLARED if capabilities is None else ",".join(sorted(set(capabilities)))
    return Poll(worker_id=worker_id, poll_id=poll_id, assignment_ms=assignment_ms, capabilities=present, starts=starts)


def parse_head(written: str) -> Head:
    rank, task_id, *task_type = written.split(" ")
    return Head(int(rank), task_id, *task_type)


def parse_use(written: str) -> Use:
    scope, rate, most, *counts = written.split(" ")
    return Use(scope, rate, most, *map(int, counts))


def parse_circuit_results(written: str) -> CircuitResults:
    task_type, kind, *counts = written.split(" ")
    return CircuitResults(task_type, kind, *map(int, counts))
