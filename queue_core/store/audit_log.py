"""Who did what to the queue as a whole: pauses, limits, drains, clean-ups, purges, replays. The latest ten thousand are
kept.

A note is written after the deed, so that none tells of what did not happen; should the store fail in between, one is
missing. It lives in the store alone: a store that is lost loses it, and no task depends on it.
"""

from typing import Any

import msgspec

from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.connect import store_errors

MAX_NOTES = 10_000


class AuditEntry(msgspec.Struct, frozen=True):
    """Persisted as JSON: add fields with defaults, never rename one."""

    at_ms: int
    by: str
    action: str
    target: str = ""
    details: str = ""


class AuditLog:
    def __init__(self, client: Any, keys: Keys) -> None:
        self._client = client
        self._stream = keys.key("audit")

    async def note(self, by: str, action: str, target: str = "", details: str = "") -> None:
        packed = msgspec.json.encode(AuditEntry(0, by, action, target, details))
        with store_errors():
            await self._client.xadd(self._stream, {"note": packed}, maxlen=MAX_NOTES, approximate=False)

    async def latest(self, limit: int) -> list[AuditEntry]:
        """The latest first; their times are those of the store, which named them."""
        with store_errors():
            entries = await self._client.xrevrange(self._stream, count=limit)
        return [_read(entry_id, fields) for entry_id, fields in entries]


def _read(entry_id: bytes, fields: dict[bytes, bytes]) -> AuditEntry:
    """One that cannot be read is listed as such."""
    try:
        note = msgspec.json.decode(fields.get(b"note", b""), type=AuditEntry)
    except msgspec.MsgspecError as error:
        note = AuditEntry(0, "", "unreadable", details=str(error))
    return msgspec.structs.replace(note, at_ms=int(entry_id.partition(b"-")[0]))
