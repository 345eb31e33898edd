"""A poll for tasks, and a partition's answer to a peek."""

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
    """Whether claimed tasks are returned as already executing."""
    circuit_shares: str = ""
    """Tasks that the worker's circuits allow, decided over several partitions; empty for one."""
    token: str = msgspec.field(default_factory=lambda: secrets.token_hex(16))
    """Part of all leases of one claim in one partition."""


class Head(NamedTuple):
    """A ready task. Sorts in the order of claims."""

    rank: int
    task_id: str
    task_type: str = ""
    """Set only if pauses, limits or circuits apply."""


class Use(NamedTuple):
    """One partition's use of one limit, in the form of `limit_usage.lua`."""

    scope: str
    rate: str
    most: str
    """Rate and maximum, as set for the whole queue; '-' for none."""
    running: int
    taken: int
    refunded: int


class CircuitResults(NamedTuple):
    """One partition's state of one of the worker's circuits, in the form of `circuit_results.lua`."""

    task_type: str
    kind: str
    """`open`, `trial`, or `failing` if a task of the type failed lately."""
    amount: int
    """When an open circuit goes on trial; the successful trials of one on trial."""
    held: int
    good: int
    bad: int


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that one partition would give, lowest rank first, and the other values of a claim."""

    now_ms: int
    retry_at_ms: int | None
    worker_status: str
    should_drain: bool
    profile: str
    stops: tuple[Stop, ...]
    answer: int
    """Number of the last reply to this poll id here; 0 for none."""
    live_count: int
    """Tasks of that reply that are still assigned under its lease."""
    heads: tuple[Head, ...]
    uses: tuple[Use, ...] = ()
    circuit_results: tuple[CircuitResults, ...] = ()
    is_suspect: bool = False
    """Whether a task of the worker failed lately in a partition that this claim may not have peeked at."""


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
        raise InvalidRequest("assignment_ms", "an assignment must have a positive time")
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
