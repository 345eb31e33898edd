"""From stream entries to changes: one transition each, cut into the record's fields and otherwise left as bytes.

This and `rows.py` are what every event of a busy queue passes through: 2 µs an event. So fields stay bytes and are
found by their place, and nothing is decoded that PostgreSQL will read as text anyway.
"""

import functools
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tideq.queue_core.engine.feed import Entry
from tideq.queue_core.engine.record import NAMES
from tideq.queue_core.states import Reason

STATE, VERSION, REASON = map(NAMES.index, ("state", "version", "reason"))
WORKER, ATTEMPT, AGE_BUCKET = map(NAMES.index, ("worker", "attempt", "age_bucket"))
CREATED, ENDED, IDEMPOTENCY = map(NAMES.index, ("created_ms", "ended_ms", "idempotency"))
SUBMITTED = Reason.SUBMITTED.encode()


class Change(NamedTuple):
    entry_id: str
    epoch: int
    now_ms: int
    task_id: bytes
    packed: bytes
    fields: Sequence[bytes]
    body: bytes | None

    @property
    def reason(self) -> bytes:
        return self.fields[REASON] or SUBMITTED

    @property
    def is_birth(self) -> bool:
        return self.fields[VERSION] == b"1"


def changes_in(entry: Entry) -> Iterator[Change]:
    """In the order they happened."""
    fields = entry.fields
    now_ms, epoch = int(fields[b"now_ms"]), int(fields[b"epoch"])
    for name, value in fields.items():
        if len(name) == 36:
            yield Change(entry.entry_id, epoch, now_ms, name, value, value.split(b"\0"), fields.get(name + b":body"))


@functools.lru_cache(maxsize=65_536)
def timestamp(instant_ms: int) -> bytes:
    """As PostgreSQL reads it. Neighbours share instants: 0.1 µs instead of 1.5 µs."""
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds").encode()
