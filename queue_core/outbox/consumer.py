"""The outbox as history reads it: in order, from where it left off, with what the submissions were about.

Watching live is `outbox.py`'s business. Entries stay until `Queue.acknowledge` says that history has them.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from tideq.queue_core.errors import StoreRefused
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.connect import store_errors
from tideq.queue_core.store.reconnecting import drop_idle_connections
from tideq.queue_core.task_id import is_task_id

FIRST_ID = "0-0"
NO_STREAM = "no such key"
"""What XINFO says of a stream that was never written to."""
READ_COUNT = 100
SCAN_COUNT = 500
INSTANT_LENGTH = 16
"""No instant has as many digits."""


class OutboxEntry(NamedTuple):
    entry_id: str
    fields: Mapping[bytes, bytes]


def written_ms(entry: OutboxEntry) -> int:
    """By the store's clock; of an entry that does not say it, as the stream numbered it."""
    told = entry.fields.get(b"now_ms", b"")
    return int(told) if told.isdigit() and len(told) < INSTANT_LENGTH else entry_order(entry.entry_id)[0]


class OutboxGap(NamedTuple):
    """Entries that are gone. Those from this instant on, by the store's clock, are all there; None for not one."""

    before_ms: int | None


class OutboxConsumer:
    """`listener` may block for as long as a read takes; commands go to `client`."""

    def __init__(self, client: Any, listener: Any, keys: Keys) -> None:
        self._client = client
        self._listener = listener
        self._stream = keys.key("outbox")
        self._haste = keys.key("haste")
        self._last_haste = FIRST_ID
        self._definitions = keys.key("definitions")
        self._records = keys.key("records")
        self._results = keys.key("results")

    async def drop_idle_connections(self) -> None:
        self._last_haste = FIRST_ID
        await drop_idle_connections(self._listener)

    async def read(self, after: str, block_ms: int | None = None, count: int = READ_COUNT) -> list[OutboxEntry]:
        """The next entries, waiting for the first if told to."""
        with store_errors():
            reader = self._client if block_ms is None else self._listener
            answer = await reader.xread({self._stream: after}, count=count, block=block_ms)
        return [OutboxEntry(text(entry_id), fields) for _, entries in answer or () for entry_id, fields in entries]

    async def request_flush(self) -> None:
        """Whoever lingers over this stream, or is about to, is told that somebody waits for what is in it."""
        with store_errors():
            await self._client.xadd(self._haste, {b"": b""}, maxlen=1, approximate=False)

    async def flush_requested(self, wait_ms: int) -> bool:
        """Whether anybody was in a hurry since the last time, or is before this much time is over."""
        with store_errors():
            answer = await self._listener.xread({self._haste: self._last_haste}, block=wait_ms)
        for _, entries in answer or ():
            self._last_haste = text(entries[-1][0])
        return bool(answer)

    async def read_up_to(self, last: str) -> list[OutboxEntry]:
        """What is still there although history has it: the entries up to and including this one."""
        with store_errors():
            entries = await self._client.xrange(self._stream, max=last)
        return [OutboxEntry(text(entry_id), fields) for entry_id, fields in entries]

    async def definitions(self, task_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Of those tasks that the store still has."""
        found = await self._fields(self._definitions, task_ids)
        return {task_id: each for task_id, each in zip(task_ids, found, strict=True) if each is not None}

    async def absent(self, task_ids: Sequence[bytes]) -> set[bytes]:
        """Those of these tasks that the store no longer knows."""
        found = await self._fields(self._records, task_ids)
        return {task_id for task_id, each in zip(task_ids, found, strict=True) if each is None}

    async def known_ids(self, count: int = SCAN_COUNT) -> AsyncIterator[list[bytes]]:
        """Every task the store has, live or finished lately, in pages of about `count`.

        A task that comes or goes meanwhile may be in a page or not; one may be in two pages.
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
        """What was trimmed away behind this entry, before anybody could have read it."""
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
        """The newest entry ever written, also where it has been trimmed away."""
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
