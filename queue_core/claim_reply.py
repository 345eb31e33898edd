"""Replies of claims and peeks, unpacked."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from tideq.queue_core.circuits import parse_circuits
from tideq.queue_core.polls.poll import Peek, parse_circuit_results, parse_head, parse_use
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.scripts.replies import instant, number, text
from tideq.queue_core.states import TaskState
from tideq.queue_core.submission import unpack_definition
from tideq.queue_core.task import Claim, ClaimedTask, Stop

STATE, ATTEMPT, LEASE, TIMEOUT_MS, VISIBLE_MS, RANK = (
    1 + NAMES.index(name) for name in ("state", "attempt", "lease", "timeout_ms", "visible_ms", "rank")
)
"""Positions in a record, behind its format number. Scripts return only records of a format that they know."""
CLAIMED_END = max(STATE, ATTEMPT, LEASE, TIMEOUT_MS, VISIBLE_MS) + 1
RETRIES, LOSSES = (1 + NAMES.index(name) - CLAIMED_END for name in ("retries", "losses"))

log = structlog.get_logger(__name__)


def parse_claim(values: Sequence[Any], token: str, *, with_ranks: bool) -> tuple[Claim, list[bytes]]:
    """Returns the claim without unreadable tasks, which no worker gets, and the ids and leases of these."""
    now, answer, retry_at, status, drains, serves, stops, circuits, claimed, taken = values
    tasks, unreadable = _split(claimed, _ranked if with_ranks else _claimed)
    claim = Claim(
        tasks=tasks,
        answer=number(answer),
        now_ms=number(now),
        retry_at_ms=instant(retry_at),
        stops=parse_stops(stops),
        worker_status=text(status),
        should_drain=number(drains) == 1,
        profile=text(serves),
        circuits=parse_circuits(text(circuits)) if circuits else (),
        is_repeat=bool(tasks) and token not in tasks[0].lease,
        taken=tuple(_taken(text(each)) for each in taken),
    )
    return claim, unreadable


def parse_peek(values: Sequence[Any]) -> Peek:
    now, retry_at, status, drains, serves, stops, answer, live, heads, uses, results, is_suspect = values
    return Peek(
        now_ms=number(now),
        retry_at_ms=instant(retry_at),
        worker_status=text(status),
        should_drain=number(drains) == 1,
        profile=text(serves),
        stops=parse_stops(stops),
        answer=number(answer),
        live_count=number(live),
        heads=tuple(parse_head(text(head)) for head in heads),
        uses=tuple(parse_use(text(use)) for use in uses),
        circuit_results=tuple(parse_circuit_results(text(each)) for each in results),
        is_suspect=number(is_suspect) == 1,
    )


def parse_stops(entries: Sequence[Any]) -> tuple[Stop, ...]:
    return tuple(Stop(*text(entry).split(" ", 1)) for entry in entries)


def _split(
    flat: Sequence[Any], read: Callable[[Sequence[Any]], ClaimedTask]
) -> tuple[tuple[ClaimedTask, ...], list[bytes]]:
    tasks: list[ClaimedTask] = []
    unreadable: list[bytes] = []
    for at in range(0, len(flat), 3):
        try:
            tasks.append(read(flat[at : at + 3]))
        except (ValueError, IndexError) as error:
            task_id, packed, _ = flat[at : at + 3]
            problem = "its record is cut off" if isinstance(error, IndexError) else str(error)
            log.error("task set aside", task_id=task_id.decode(errors="replace"), problem=problem)
            unreadable += (task_id, packed.split(b"\0", LEASE + 1)[LEASE])
    return tuple(tasks), unreadable


def _ranked(parts: Sequence[Any]) -> ClaimedTask:
    rank = text(parts[1]).split("\0", RANK + 1)[RANK]
    return msgspec.structs.replace(_claimed(parts), rank=int(rank))


def _claimed(parts: Sequence[Any]) -> ClaimedTask:
    task_id, packed, definition = parts
    # Only the head of the record is split: reading all its fields takes four times as long.
    values = text(packed).split("\0", CLAIMED_END)
    attempt = int(values[ATTEMPT])
    spent = values[CLAIMED_END].split("\0", LOSSES + 1) if attempt > 1 else ()
    return ClaimedTask(
        task_id=text(task_id),
        definition=unpack_definition(definition or b""),
        attempt=attempt,
        lease=values[LEASE],
        timeout_ms=int(values[TIMEOUT_MS]),
        visible_at_ms=int(values[VISIBLE_MS]),
        is_started=values[STATE] == TaskState.EXECUTING,
        retry_count=int(spent[RETRIES]) if spent else 0,
        losses=int(spent[LOSSES]) if spent else 0,
    )


def _taken(written: str) -> tuple[str, int]:
    scope, count = written.split(" ")
    return scope, int(count)
