"""From stream entries to changes: one transition each, left as the bytes that came.

This and `rows.py` are what every event of a busy queue passes through. So nothing is cut into fields before it is known
which of them matter, and nothing is decoded that PostgreSQL will read as text anyway.
"""

import functools
from datetime import UTC, datetime

import msgspec

from tideq.queue_core.outbox.consumer import OutboxEntry, entry_order
from tideq.queue_core.scripts.record import NAMES, without_number
from tideq.queue_core.states import Reason

STATE, VERSION, REASON, ENDED = map(NAMES.index, ("state", "version", "reason", "ended_ms"))
WORKER, ATTEMPT, AGE_BUCKET = map(NAMES.index, ("worker", "attempt", "age_bucket"))
CREATED, IDEMPOTENCY = map(NAMES.index, ("created_ms", "idempotency"))
SUBMITTED = Reason.SUBMITTED.encode()
FIRST_VERSION = b"1"
MAX_NUMBER, MAX_INSTANT_MS = 2**31, 2**47
"""What PostgreSQL's columns, and its instants, have room for."""
UNREADABLE = b"0\0"
"""Before a record, it makes one of a format that nobody reads; behind it the record is as it came."""


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
        """In the order of `NAMES`; behind them what only later versions know, and nothing after the last."""
        return without_number(self.packed).split(b"\0")

    @property
    def state(self) -> bytes:
        return self._field(STATE)

    @property
    def version(self) -> bytes:
        return self._field(VERSION)

    @property
    def reason(self) -> bytes:
        return self._field(REASON) or SUBMITTED

    @property
    def task_name(self) -> str:
        """The task's id; what came instead of one as a text that PostgreSQL takes."""
        return self.task_id.decode(errors="replace").replace("\0", "\ufffd")

    @property
    def known_version(self) -> int:
        """0 where the record cannot be read."""
        version = self._known_number(VERSION)
        return version if version is not None and version < MAX_NUMBER else 0

    @property
    def known_created_ms(self) -> int | None:
        """None where the record cannot be read, as of the reason."""
        return self._known_number(CREATED)

    @property
    def known_reason(self) -> bytes | None:
        try:
            return self.reason
        except (ValueError, LookupError):
            return None

    def _known_number(self, index: int) -> int | None:
        try:
            text = self._field(index)
        except (ValueError, LookupError):
            return None
        return int(text) if text.isdigit() else None

    def _field(self, index: int) -> bytes:
        return without_number(self.packed).split(b"\0", index + 1)[index]


def changes_in(entry: OutboxEntry) -> list[Change]:
    """In the order they happened. Of an entry that cannot be read every event is one that cannot be."""
    entry_id, fields = entry
    try:
        now_ms, epoch, body_of = int(fields[b"now_ms"]), int(fields[b"epoch"]), fields.get
    except (KeyError, ValueError):
        now_ms, epoch, body_of = -1, -1, fields.get
    if not (0 <= now_ms < MAX_INSTANT_MS and 0 <= epoch < MAX_NUMBER):
        return [
            Change(entry_id, 0, entry_order(entry_id)[0], task_id, UNREADABLE + packed, None)
            for task_id, packed in fields.items()
            if len(task_id) == 36
        ]
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
