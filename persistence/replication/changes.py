"""Changes: the transitions in a stream entry, as the bytes that arrived.

Every event passes through this module and `rows.py`. So records are split only as far as needed, and bytes that
PostgreSQL reads as text are never decoded.
"""

import functools
from datetime import UTC, datetime

import msgspec

from tideq.queue_core.outbox.reader import OutboxEntry, entry_order
from tideq.queue_core.scripts.record import NAMES, without_number
from tideq.queue_core.states import Reason

STATE, VERSION, REASON, ENDED = map(NAMES.index, ("state", "version", "reason", "ended_ms"))
WORKER, ATTEMPT, AGE_BUCKET = map(NAMES.index, ("worker", "attempt", "age_bucket"))
CREATED, IDEMPOTENCY = map(NAMES.index, ("created_ms", "idempotency"))
SUBMITTED = Reason.SUBMITTED.encode()
FIRST_VERSION = b"1"
MAX_NUMBER, MAX_INSTANT_MS = 2**31, 2**47
"""The limits of PostgreSQL's integers and instants."""
UNREADABLE = b"0\0"
"""A prefix that marks a record as of an unreadable format; the record follows as it came."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """Not tracked by the garbage collector, whose scans of batches took 11 % of the time."""

    entry_id: str
    epoch: int
    now_ms: int
    task_id: bytes
    packed: bytes
    body: bytes | None

    @property
    def fields(self) -> list[bytes]:
        """The record's fields in the order of `NAMES`, then those of later versions, then an empty one."""
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
    def printable_id(self) -> str:
        """The task's id as text; an invalid id with the bytes replaced that PostgreSQL refuses."""
        return self.task_id.decode(errors="replace").replace("\0", "\ufffd")

    @property
    def readable_version(self) -> int:
        """The version, or 0 where the record cannot be read."""
        version = self._readable_number(VERSION)
        return version if version is not None and version < MAX_NUMBER else 0

    @property
    def readable_created_ms(self) -> int | None:
        """The instant of creation, or None where the record cannot be read."""
        return self._readable_number(CREATED)

    @property
    def readable_reason(self) -> bytes | None:
        """The reason, or None where the record cannot be read."""
        try:
            return self.reason
        except (ValueError, LookupError):
            return None

    def _readable_number(self, index: int) -> int | None:
        try:
            text = self._field(index)
        except (ValueError, LookupError):
            return None
        return int(text) if text.isdigit() else None

    def _field(self, index: int) -> bytes:
        return without_number(self.packed).split(b"\0", index + 1)[index]


def changes_in(entry: OutboxEntry) -> list[Change]:
    """Returns the changes of an entry in their order. If the entry is unreadable, each change is unreadable too."""
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
    """Returns the instant as PostgreSQL text. Cached because neighbours share instants: 0.1 µs instead of 1.5 µs."""
    return datetime.fromtimestamp(instant_ms / 1000, UTC).isoformat(timespec="milliseconds").encode()
