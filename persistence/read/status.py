"""The status of history for metrics: replies within MAX_SECONDS, even if the database hangs.

While the database is away, the lag is computed from the last checkpoint that was read, so it grows.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import Database, statement
from tideq.queue_core.engine import Engine
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID, written_ms
from tideq.queue_core.scripts.runner import Scripts

MAX_SECONDS = 1.0


class HistoryStatus(NamedTuple):
    is_up: bool
    epoch: int | None
    """None before the first replication, or if no checkpoint could be read."""
    parked_count: int | None
    lag_ms: int | None


class PartitionStatus:
    def __init__(self, database: Database, consumer: OutboxConsumer, partition: int) -> None:
        self._database = database
        self._consumer = consumer
        self._partition = partition
        self._refreshing: asyncio.Task[bool] | None = None
        self._checkpoint: Checkpoint | None = None
        self._parked_count: int | None = None

    async def read(self, now_ms: int, epoch: str) -> HistoryStatus:
        """Returns the status at the store's `now_ms`. History of another epoch lags by the whole stream."""
        is_up = await self._refresh_in_time()
        last = self._checkpoint
        if last is None and not is_up:
            return HistoryStatus(is_up, None, None, None)
        lag_ms = await self._lag_ms(now_ms, last.entry_id if last and str(last.epoch) == epoch else FIRST_ID)
        return HistoryStatus(is_up, last.epoch if last else None, self._parked_count, lag_ms)

    async def _refresh_in_time(self) -> bool:
        """Returns whether the database replied in time. A slow query goes on, and the next call waits for it: to cancel
        it takes the driver seconds, with a request to the same server."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
        await asyncio.wait({self._refreshing}, timeout=MAX_SECONDS)
        return self._refreshing.done() and self._refreshing.result()

    async def _refresh(self) -> bool:
        try:
            async with self._database.reading() as connection:
                row = await (await connection.execute(statement("history_status"), (self._partition,) * 2)).fetchone()
        except HistoryUnavailable:
            return False
        self._checkpoint, self._parked_count = (Checkpoint(*row[:4]), row[4]) if row else (None, 0)
        return True

    async def _lag_ms(self, now_ms: int, after: str) -> int:
        entries = await self._consumer.read(after, count=1)
        return max(now_ms - written_ms(entries[0]), 0) if entries else 0


class StatusReader:
    """The status of all partitions: the largest lag, and the lowest epoch."""

    def __init__(self, parts: Sequence[tuple[PartitionStatus, Scripts]]) -> None:
        self._parts = parts

    async def read(self, now_ms: int) -> HistoryStatus:
        parts = await asyncio.gather(*(reader.read(now_ms, scripts.epoch) for reader, scripts in self._parts))
        return HistoryStatus(
            is_up=all(each.is_up for each in parts),
            epoch=_merge_present(min, [each.epoch for each in parts]),
            parked_count=_merge_present(sum, [each.parked_count for each in parts]),
            lag_ms=_merge_present(max, [each.lag_ms for each in parts]),
        )


def _merge_present(merge: Callable[[list[int]], int], values: list[int | None]) -> int | None:
    present = [value for value in values if value is not None]
    return merge(present) if present else None


def status_reader_of(database: Database, client: Any, engine: Engine) -> StatusReader:
    return StatusReader(
        [
            (PartitionStatus(database, OutboxConsumer(client, part.keys), part.settings.partition), part.scripts)
            for part in engine.parts
        ]
    )
