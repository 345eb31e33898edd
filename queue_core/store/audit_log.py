"""The audit log of administrative actions: pauses, limits, drains, clean-ups, purges, replays.

An entry is written after the action, so a failure of the store in between loses the entry. The log keeps the latest ten
thousand entries, in the store only: a lost store loses them.
"""

from typing import Any

import msgspec

from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.store.driver_errors import store_errors

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
        """Returns the latest entries first. Their times are the store's, from the entry ids."""
        with store_errors():
            entries = await self._client.xrevrange(self._stream, count=limit)
        return [_read(entry_id, fields) for entry_id, fields in entries]


def _read(entry_id: bytes, fields: dict[bytes, bytes]) -> AuditEntry:
    """An unreadable entry is listed with the action `unreadable`."""
    try:
        note = msgspec.json.decode(fields.get(b"note", b""), type=AuditEntry)
    except msgspec.MsgspecError as error:
        note = AuditEntry(0, "", "unreadable", details=str(error))
    return msgspec.structs.replace(note, at_ms=int(entry_id.partition(b"-")[0]))
