"""Reads the outbox for history: entries in order after a given one, with definitions, records and results.

Entries stay in the stream until `Queue.acknowledge`. Live events are in `stream.py` and `live.py`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from tideq.queue_core.errors import StoreRefused
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.store_client import drop_idle_connections
from tideq.queue_core.task_id import is_task_id

FIRST_ID = "0-0"
NO_STREAM = "no such key"
"""XINFO's error for a stream that was never written to."""
READ_COUNT = 100
SCAN_COUNT = 500
INSTANT_LENGTH = 16
"""More digits than any instant has."""


class OutboxEntry(NamedTuple):
    entry_id: str
    fields: Mapping[bytes, bytes]


def written_ms(entry: OutboxEntry) -> int:
    """Returns the queue's time at which the entry was written; without a valid one, the time in the entry id."""
    written = entry.fields.get(b"now_ms", b"")
    return int(written) if written.isdigit() and len(written) < INSTANT_LENGTH else entry_order(entry.entry_id)[0]


class OutboxGap(NamedTuple):
    """Trimmed entries. All entries from `before_ms` on, by the queue's time, are still there; None if none is."""

    before_ms: int | None


class OutboxConsumer:
    """`listener` may block for as long as a read takes; commands go to `client`."""

    def __init__(self, client: Any, listener: Any, keys: Keys) -> None:
        self._client = client
        self._listener = listener
        self._stream = keys.key("outbox")
        self._flush_key = keys.key("flush_request")
        self._last_flush = FIRST_ID
        self._definitions = keys.key("definitions")
        self._records = keys.key("records")
        self._results = keys.key("results")

    async def drop_idle_connections(self) -> None:
        self._last_flush = FIRST_ID
        await drop_idle_connections(self._listener)

    async def read(self, after: str, block_ms: int | None = None, count: int = READ_COUNT) -> list[OutboxEntry]:
        """Returns the next entries; with `block_ms`, waits up to that long for the first."""
        with store_errors():
            reader = self._client if block_ms is None else self._listener
            answer = await reader.xread({self._stream: after}, count=count, block=block_ms)
        return [OutboxEntry(text(entry_id), fields) for _, entries in answer or () for entry_id, fields in entries]

    async def request_flush(self) -> None:
        """Make a replicator that lingers over this stream, or is about to, write its batch at once."""
        with store_errors():
            await self._client.xadd(self._flush_key, {b"": b""}, maxlen=1, approximate=False)

    async def flush_requested(self, wait_ms: int) -> bool:
        """Whether a flush was requested since the last call, or is within `wait_ms`."""
        with store_errors():
            answer = await self._listener.xread({self._flush_key: self._last_flush}, block=wait_ms)
        for _, entries in answer or ():
            self._last_flush = text(entries[-1][0])
        return bool(answer)

    async def read_up_to(self, last: str) -> list[OutboxEntry]:
        """Returns the entries up to and including this one: those that history has and the stream still holds."""
        with store_errors():
            entries = await self._client.xrange(self._stream, max=last)
        return [OutboxEntry(text(entry_id), fields) for entry_id, fields in entries]

    async def definitions(self, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Returns the definitions of those tasks that the store still has."""
        found = await self._fields(self._definitions, task_ids)
        return {task_id: each for task_id, each in zip(task_ids, found, strict=True) if each is not None}

    async def absent(self, task_ids: Sequence[bytes]) -> set[bytes]:
        """Returns those of the tasks that the store no longer has."""
        found = await self._fields(self._records, task_ids)
        return {task_id for task_id, each in zip(task_ids, found, strict=True) if each is None}

    async def task_ids(self, count: int = SCAN_COUNT) -> AsyncIterator[list[bytes]]:
        """Yields the ids of all tasks in the store, live or finished lately, in pages of about `count`.

        Tasks added or removed during the scan may be missing; a task may appear in two pages.
        """
        cursor = None
        while cursor != 0:
            with store_errors():
                cursor, found = await self._client.hscan(self._records, cursor or 0, count=count)
            yield [task_id for task_id in found if is_task_id(task_id.decode(errors="replace"))]

    async def records(self, task_ids: Sequence[bytes]) -> list[bytes | None]:
        return await self._fields(self._records, task_ids)

    async def results(self, task_ids: Sequence[bytes]) -> list[bytes | None]:
        return await self._fields(self._results, task_ids)

    async def gap_after(self, entry_id: str) -> OutboxGap | None:
        """Returns the gap of unread entries that were trimmed after this entry; None if there is none."""
        with store_errors():
            if not await self._client.exists(self._stream):
                return None
            stream = await self._client.xinfo_stream(self._stream)
        first, last = stream["first-entry"], stream["last-generated-id"]
        if stream["entries-added"] == stream["length"] or entry_order(text(last)) <= entry_order(entry_id):
            return None
        if first is None:
            return OutboxGap(None)
        return (
            OutboxGap(written_ms(OutboxEntry(text(first[0]), first[1])))
            if entry_order(text(first[0])) > entry_order(entry_id)
            else None
        )

    async def _fields(self, key: str, fields: Sequence[bytes]) -> list[bytes | None]:
        with store_errors():
            return await self._client.hmget(key, fields) if fields else []

    async def last_id(self) -> str:
        """Returns the id of the newest entry ever written, even if it has been trimmed."""
        return await last_entry_id(self._client, self._stream)


async def last_entry_id(client: Any, stream: str) -> str:
    try:
        with store_errors():
            return text((await client.xinfo_stream(stream))["last-generated-id"])
    except StoreRefused as error:
        if str(error).removeprefix("ERR ") == NO_STREAM:
            return FIRST_ID
        raise


def entry_order(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def entry_after(entry_id: str) -> str:
    milliseconds, sequence = entry_order(entry_id)
    return f"{milliseconds}-{sequence + 1}"
