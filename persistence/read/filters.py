"""The filter of a task list: any combination of conditions, all of which must hold."""

import uuid
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from tideq.persistence.schema.partitions import id_at

CLOCK_DRIFT_MS = 1_000
"""Ids carry the clock of the process that made them, `created_at` the store's: ranges of ids are this much wider."""
EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_000
LAST_ID = uuid.UUID(int=2**128 - 1)


class IdRange(NamedTuple):
    """The upper end excluded."""

    first: uuid.UUID
    below: uuid.UUID


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Instants are Unix milliseconds, the upper ones excluded. A task must have every one of the terms."""

    states: tuple[str, ...] = ()
    task_type: str | None = None
    priority: str | None = None
    worker_id: str | None = None
    trace_id: str | None = None
    terms: tuple[str, ...] = ()
    created_from_ms: int | None = None
    created_below_ms: int | None = None
    ended_below_ms: int | None = None

    def scope(self) -> bytes:
        """Returns the bytes that identify the list in its cursors."""
        return b"tasks" + msgspec.json.encode(self)

    def id_range(self) -> IdRange:
        """Returns the ids of tasks that can match the time range; a task is created before it ends."""
        ends = [end for end in (self.created_below_ms, self.ended_below_ms) if end is not None]
        return IdRange(
            id_at(0 if self.created_from_ms is None else self.created_from_ms - CLOCK_DRIFT_MS),
            id_at(min(ends) + CLOCK_DRIFT_MS) if ends else LAST_ID,
        )

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters of `CONDITIONS` by name; None or empty for a condition the filter does not have."""
        return {
            "states": list(dict.fromkeys(self.states)) or None,
            "task_type": self.task_type,
            "priority": self.priority,
            "worker_id": self.worker_id,
            "terms": list(dict.fromkeys(self.terms)),
            "created_from": _maybe_timestamp(self.created_from_ms),
            "created_below": _maybe_timestamp(self.created_below_ms),
            "ended_below": _maybe_timestamp(self.ended_below_ms),
        }


def timestamp_of(instant_ms: int) -> datetime:
    """Clamps instants to the range of `datetime`."""
    return datetime.fromtimestamp(min(max(instant_ms, EARLIEST_MS), LATEST_MS) / 1000, UTC)


def _maybe_timestamp(instant_ms: int | None) -> datetime | None:
    return None if instant_ms is None else timestamp_of(instant_ms)
