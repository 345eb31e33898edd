"""Reads the outbox stream of one partition: its entries, and one rule for entries that are missing.

Only the oldest entries are trimmed. So nothing is missing after an entry that the stream still has, nor after the last
one it ever had. After any other entry there is a gap: entries were trimmed unread, or the stream is another store's.
An event that cannot be read is skipped alone, and counted; history parks it instead.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import structlog

from tideq.queue_core.errors import StoreRefused
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import lossy_text, text
from tideq.queue_core.store.driver_errors import store_errors

FIRST_ID = "0-0"
"""The cursor before the first entry."""
NO_STREAM = "no such key"
"""XINFO's error for a stream that was never written to."""
READ_COUNT = 100
ID_LENGTH = 36
"""Length of a task id. Fields of an entry with names of other lengths are not events; later versions may add some."""
INSTANT_LENGTH = 16
"""More digits than any instant has."""

log = structlog.get_logger(__name__)


class OutboxEntry(NamedTuple):
    entry_id: str
    fields: Mapping[bytes, bytes]

    @property
    def event_names(self) -> list[bytes]:
        """Returns the names of the fields that are events: task ids."""
        return [name for name in self.fields if len(name) == ID_LENGTH]


class OutboxGap(NamedTuple):
    """Missing entries. All entries from `before_ms` on, by the queue's time, are still there; None if none is."""

    before_ms: int | None


class OutboxPage(NamedTuple):
    entries: list[OutboxEntry]
    gap: OutboxGap | None = None
    """What is missing before these entries."""
    previous: OutboxEntry | None = None
    """The entry at the cursor, of which the reader may have used only a part; None where it was trimmed."""


class OutboxReader:
    """`listener` may block for as long as a read takes; commands go to `client`."""

    def __init__(self, client: Any, keys: Keys, listener: Any = None) -> None:
        self.skipped_count = 0
        """Events that could not be read."""
        self._client = client
        self._listener = listener or client
        self._stream = keys.key("outbox")

    async def read(self, after: str, block_ms: int | None = None, count: int = READ_COUNT) -> list[OutboxEntry]:
        """Returns the next entries; with `block_ms`, waits up to that long for the first. See `gap_after`."""
        with store_errors():
            reader = self._client if block_ms is None else self._listener
            answer = await reader.xread({self._stream: after}, count=count, block=block_ms)
        return [entry for _, entries in answer or () for entry in _entries(entries)]

    async def page(self, after: str, count: int = READ_COUNT) -> OutboxPage:
        """Returns the next entries, and the gap before them; without a gap it costs one command."""
        with store_errors():
            entries = _entries(await self._client.xrange(self._stream, after, count=count + 1))
        if entries and entries[0].entry_id == after:
            return OutboxPage(entries[1:], previous=entries[0])
        return OutboxPage(entries[:count], await self._gap_without(after))

    async def gap_after(self, entry_id: str) -> OutboxGap | None:
        """Returns the gap after this entry, or None if every later entry is still there."""
        with store_errors():
            is_kept = entry_id != FIRST_ID and await self._client.xrange(self._stream, entry_id, entry_id)
        return None if is_kept else await self._gap_without(entry_id)

    async def entries_up_to(self, last: str) -> list[OutboxEntry]:
        """Returns the entries up to and including this one."""
        with store_errors():
            return _entries(await self._client.xrange(self._stream, max=last))

    async def last_id(self) -> str:
        """Returns the id of the newest entry ever written, even if it has been trimmed."""
        return await last_entry_id(self._client, self._stream)

    def skip(self, entry_id: str, task_id: bytes, problem: Exception) -> None:
        self.skipped_count += 1
        log.error("event skipped", entry_id=entry_id, task_id=lossy_text(task_id), problem=repr(problem))

    async def _gap_without(self, entry_id: str) -> OutboxGap | None:
        """Returns the gap after an entry that the stream no longer has."""
        stream = await _stream_info(self._client, self._stream)
        if stream is None:
            return None if entry_id == FIRST_ID else OutboxGap(None)
        is_untrimmed, last_id = stream["entries-added"] == stream["length"], text(stream["last-generated-id"])
        if last_id == entry_id or (entry_id == FIRST_ID and is_untrimmed):
            return None
        first = stream["first-entry"]
        return OutboxGap(written_ms(*_entries([first])) if first else None)


async def last_entry_id(client: Any, stream: str) -> str:
    found = await _stream_info(client, stream)
    return text(found["last-generated-id"]) if found else FIRST_ID


async def _stream_info(client: Any, stream: str) -> Any:
    try:
        with store_errors():
            return await client.xinfo_stream(stream)
    except StoreRefused as error:
        if str(error).removeprefix("ERR ") == NO_STREAM:
            return None
        raise


def _entries(found: list[tuple[bytes, Mapping[bytes, bytes]]]) -> list[OutboxEntry]:
    return [OutboxEntry(text(entry_id), fields) for entry_id, fields in found]


def written_ms(entry: OutboxEntry) -> int:
    """Returns the queue's time at which the entry was written; without a valid one, the time in the entry id."""
    written = entry.fields.get(b"now_ms", b"")
    return int(written) if written.isdigit() and len(written) < INSTANT_LENGTH else entry_order(entry.entry_id)[0]


def entry_order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)
