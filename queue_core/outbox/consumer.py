"""Reads the outbox for history: the stream, with the definitions, records and results of its tasks.

Entries stay in the stream until `Queue.acknowledge`.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from tideq.queue_core.outbox.reader import FIRST_ID, OutboxReader
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.driver_errors import store_errors
from tideq.queue_core.store.store_client import drop_idle_connections
from tideq.queue_core.task_id import is_task_id

SCAN_COUNT = 500


class OutboxConsumer(OutboxReader):
    def __init__(self, client: Any, keys: Keys, listener: Any = None) -> None:
        super().__init__(client, keys, listener)
        self._flush_key = keys.key("flush_request")
        self._last_flush = FIRST_ID
        self._definitions = keys.key("definitions")
        self._records = keys.key("records")
        self._results = keys.key("results")

    async def drop_idle_connections(self) -> None:
        self._last_flush = FIRST_ID
        await drop_idle_connections(self._listener)

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

    async def _fields(self, key: str, fields: Sequence[bytes]) -> list[bytes | None]:
        with store_errors():
            return await self._client.hmget(key, fields) if fields else []
