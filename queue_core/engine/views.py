"""From what the store keeps of a task to a `Task`."""

from typing import Any

import msgspec

from tideq.queue_core.engine.record import Record, parse_record
from tideq.queue_core.engine.replies import instant, text
from tideq.queue_core.engine.submission import unpack_definition
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Definition, Progress, Task

SINCE = {TaskState.QUEUED: "queued_ms", TaskState.ASSIGNED: "assigned_ms", TaskState.EXECUTING: "started_ms"}


def task_view(task_id: str, now_ms: int, row: Any) -> Task | None:
    """A row of `read.lua`: score, place in lane, record, definition, result, and the notes as a flat list."""
    score, position, packed, definition, result, flat = row
    if not packed:
        return None
    notes: dict[str, bytes] = {text(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}
    record, placed = parse_record(packed), instant(score)
    task = task_of(task_id, now_ms, record, unpack_definition(definition), result or None, _errors(notes))
    return msgspec.structs.replace(
        task,
        visible_at_ms=placed if placed is not None and placed > 0 else None,
        lane_position=instant(position),
        progress=_progress(notes.get("p"), record),
    )


def task_of(
    task_id: str, now_ms: int, record: Record, definition: Definition, result: bytes | None, errors: tuple[bytes, ...]
) -> Task:
    """What a record and a definition say by themselves, whoever kept them."""
    state = TaskState(record.text("state"))
    created_ms = record.number("created_ms")
    return Task(
        task_id=task_id,
        definition=definition,
        state=state,
        reason=Reason(record.text("reason")),
        version=record.number("version"),
        rank=record.number("rank"),
        lane=record.number("lane"),
        priority=record.priority,
        attempt=record.number("attempt"),
        retry_count=record.number("retries"),
        losses=record.number("losses"),
        deliveries=record.number("deliveries"),
        max_retries=record.number("max_retries"),
        timeout_ms=record.number("timeout_ms"),
        created_at_ms=created_ms,
        eligible_at_ms=record.instant("eligible_ms") or created_ms,
        state_since_ms=record.instant(SINCE.get(state, "ended_ms")) or created_ms,
        visible_at_ms=record.instant("visible_ms"),
        assigned_at_ms=record.instant("assigned_ms"),
        started_at_ms=record.instant("started_ms"),
        ended_at_ms=record.instant("ended_ms"),
        worker_id=record.text("worker") or None,
        lane_position=None,
        progress=None,
        result=result,
        errors=errors,
        now_ms=now_ms,
    )


def _progress(packed: bytes | None, record: Record) -> Progress | None:
    """Progress of an earlier attempt says nothing about this one."""
    if packed is None:
        return None
    attempt, _, percent, message = packed.decode().split("|", 3)
    return Progress(float(percent), message) if int(attempt) == record.number("attempt") else None


def _errors(notes: dict[str, bytes]) -> tuple[bytes, ...]:
    attempts = sorted(int(name[1:]) for name in notes if name[0] == "e")
    return tuple(notes[f"e{attempt}"] for attempt in attempts)
