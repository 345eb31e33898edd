"""From stream entries to changes: one transition each, left as the bytes that came.

This and `rows.py` are what every event of a busy queue passes through. So nothing is cut into fields before it is known
which of them matter, and nothing is decoded that PostgreSQL will read as text anyway.
"""

import functools
from datetime import UTC, datetime

import msgspec

from tideq.queue_core.engine.feed import Entry
from tideq.queue_core.engine.record import NAMES
from tideq.queue_core.states import Reason

STATE, VERSION, REASON, ENDED = map(NAMES.index, ("state", "version", "reason", "ended_ms"))
WORKER, ATTEMPT, AGE_BUCKET = map(NAMES.index, ("worker", "attempt", "age_bucket"))
CREATED, IDEMPOTENCY = map(NAMES.index, ("created_ms", "idempotency"))
SUBMITTED = Reason.SUBMITTED.encode()
FIRST_VERSION = b"1"


class Change(msgspec.Struct, frozen=True, gc=False):
    """Untracked by the garbage collector, as is all it holds: looking through batches took 11 % of the time."""

    entry_id: str
    epoch: int
    now_ms: int
    task_id: bytes
    packed: bytes
    body: bytes | None

    @property
    def fields(self) -> list[bytes]:
        """In the order of `NAMES`, and nothing after the last."""
        return self.packed.split(b"\0")

    @property
    def state(self) -> bytes:
        return self.packed.split(b"\0", STATE + 1)[STATE]

    @property
    def version(self) -> bytes:
        return self.packed.split(b"\0", VERSION + 1)[VERSION]

    @property
    def reason(self) -> bytes:
        return self.packed.split(b"\0", REASON + 1)[REASON] or SUBMITTED


def changes_in(entry: Entry) -> list[Change]:
    """In the order they happened."""
    entry_id, fields = entry
    now_ms, epoch, body_of = int(fields[b"now_ms"]), int(fields[b"epoch"]), fields.get
    return [
        Change(entry_id, epoch, now_ms, task_id, packed, body_of(task_id + b":body"))
        for task_id, packed in fields.items()
        if len(task_id) == 36
    ]


def priority_of(age_bucket: bytes) -> bytes:
    return age_bucket.rpartition(b":")[0]


@functools.lru_cache(maxsize=65_536)
def timestamp(instant_ms: int) -> bytes:
    """As PostgreSQL reads it. Neighbours share instants: 0.1 µs instead of 1.5 µs."""
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds").encode()
