"""Turns the stored parts of a task into a `Task`."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from tideq.queue_core.scripts.record import record_fields
from tideq.queue_core.scripts.replies import instant, lossy_text
from tideq.queue_core.states import reason_named, state_named
from tideq.queue_core.submission import unpack_definition
from tideq.queue_core.task import Definition, Progress, Task

UNREADABLE = "unreadable"
"""The state that scripts return for a task whose record they cannot read."""
ERROR_NOTE = re.compile(r"e\d{1,9}", re.ASCII)
"""Notes with other names are of a later version."""

log = structlog.get_logger(__name__)


def task_view(task_id: str, now_ms: int, row: Any) -> Task | None:
    """Parse a row of `read.lua`: score, place in lane, record, definition, result, and the notes as a flat list.

    Returns None for a task that the store does not have or that cannot be read; history may have an earlier version.
    """
    try:
        return _read_view(task_id, now_ms, row)
    except ValueError as error:
        log.warning("task unreadable", task_id=task_id, problem=str(error))
        return None


def _read_view(task_id: str, now_ms: int, row: Any) -> Task | None:
    score, position, packed, definition, result, flat = row
    if not packed:
        return None
    notes: dict[str, bytes] = {lossy_text(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}
    fields, placed = record_fields(packed.decode()), instant(score)
    errors = _errors(notes)
    error_count = len(errors) + int(notes.get("dropped", 0))
    task = task_of(task_id, now_ms, fields, unpack_definition(definition), result or None, errors, error_count)
    return msgspec.structs.replace(
        task,
        visible_at_ms=placed if placed is not None and placed > 0 else None,
        lane_position=instant(position),
        progress=_progress(notes.get("p"), task.attempt),
    )


def task_of(
    task_id: str,
    now_ms: int,
    fields: Sequence[str],
    definition: Definition,
    result: bytes | None,
    errors: tuple[bytes, ...],
    error_count: int,
) -> Task:
    """Returns the task of a record's fields and a definition, from the store or from history.

    Raises ValueError for an invalid field. Unpacks all fields at once, in the record's order, which a test compares:
    looking fields up by name takes three times as long, and dominates the cost of a page of tasks.
    """
    (
        state, version, lane, visible_ms, age_bucket, timeout_ms, attempt, _lease, worker, reason, assigned_ms,
        started_ms, ended_ms, _last_result, rank, max_retries, retries, losses, deliveries, created_ms, eligible_ms,
        queued_ms, _backoff, _idempotency, _,
    ) = fields  # fmt: skip
    since = {"queued": queued_ms, "assigned": assigned_ms, "executing": started_ms}.get(state, ended_ms)
    return Task(
        task_id=task_id,
        definition=definition,
        state=state_named(state),
        reason=reason_named(reason),
        version=int(version),
        rank=int(rank),
        lane=int(lane),
        priority=age_bucket.rpartition(":")[0],
        attempt=int(attempt),
        retry_count=int(retries),
        losses=int(losses),
        deliveries=int(deliveries),
        max_retries=int(max_retries),
        timeout_ms=int(timeout_ms),
        created_at_ms=int(created_ms),
        eligible_at_ms=int(eligible_ms or created_ms),
        state_since_ms=int(since or created_ms),
        visible_at_ms=int(visible_ms) if visible_ms else None,
        assigned_at_ms=int(assigned_ms) if assigned_ms else None,
        started_at_ms=int(started_ms) if started_ms else None,
        ended_at_ms=int(ended_ms) if ended_ms else None,
        worker_id=worker or None,
        lane_position=None,
        progress=None,
        result=result,
        errors=errors,
        error_count=error_count,
        now_ms=now_ms,
    )


def _progress(packed: bytes | None, current: int) -> Progress | None:
    """Returns None for the progress of an earlier attempt, and for an unreadable one."""
    if packed is None:
        return None
    try:
        attempt, _, percent, message = packed.decode().split("|", 3)
        return Progress(float(percent), message) if int(attempt) == current else None
    except ValueError:
        return None


def _errors(notes: dict[str, bytes]) -> tuple[bytes, ...]:
    attempts = sorted((int(name[1:]), error) for name, error in notes.items() if ERROR_NOTE.fullmatch(name))
    return tuple(error for _, error in attempts)
