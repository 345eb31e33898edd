"""How history stands, for those who watch over it: never slow, whatever the database does.

While the database is away, the lag is reckoned from where history was last seen to be: it grows, as it should.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import Database, statement
from tideq.queue_core.engine import Engine
from tideq.queue_core.errors import HistoryUnavailable
from tideq.queue_core.outbox.consumer import FIRST_ID, OutboxConsumer, written_ms
from tideq.queue_core.scripts.runner import Scripts

MAX_SECONDS = 1.0


class HistoryStatus(NamedTuple):
    is_up: bool
    epoch: int | None
    """None where nothing was ever replicated, or nobody knows."""
    parked_count: int | None
    lag_ms: int | None


class StatusReader:
    def __init__(self, database: Database, feed: OutboxConsumer, partition: int) -> None:
        self._database = database
        self._feed = feed
        self._partition = partition
        self._looking: asyncio.Task[bool] | None = None
        self._seen: Checkpoint | None = None
        self._parked_count: int | None = None

    async def standing(self, now_ms: int, epoch: str) -> HistoryStatus:
        """`now_ms` and `epoch` are the store's: a history of another epoch has nothing of this one."""
        is_up = await self._look_in_time()
        seen = self._seen
        if seen is None and not is_up:
            return HistoryStatus(is_up, None, None, None)
        lag_ms = await self._lag_ms(now_ms, seen.entry_id if seen and str(seen.epoch) == epoch else FIRST_ID)
        return HistoryStatus(is_up, seen.epoch if seen else None, self._parked_count, lag_ms)

    async def _look_in_time(self) -> bool:
        """A look that takes longer is left to itself, and the next one waits for it: to break it off the driver first
        asks the server to, for seconds, which is no use with one that does not answer."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait({self._looking}, timeout=MAX_SECONDS)
        return self._looking.done() and self._looking.result()

    async def _look(self) -> bool:
        try:
            async with self._database.reading() as connection:
                row = await (await connection.execute(statement("standing"), (self._partition,) * 2)).fetchone()
        except HistoryUnavailable:
            return False
        self._seen, self._parked_count = (Checkpoint(*row[:4]), row[4]) if row else (None, 0)
        return True

    async def _lag_ms(self, now_ms: int, after: str) -> int:
        entries = await self._feed.read(after, count=1)
        return max(now_ms - written_ms(entries[0]), 0) if entries else 0


class StatusReaderOfAll(StatusReader):
    """Of all partitions: history lags as much as where it lags most, and is of the epoch it has come to everywhere."""

    def __init__(self, database: Database, feed: OutboxConsumer, parts: Sequence[tuple[StatusReader, Scripts]]) -> None:
        super().__init__(database, feed, 0)
        self._parts = parts

    async def standing(self, now_ms: int, epoch: str) -> HistoryStatus:
        """Each partition has an epoch of its own; the one that is given is the first's."""
        told = await asyncio.gather(*(watch.standing(now_ms, scripts.epoch) for watch, scripts in self._parts))
        return HistoryStatus(
            is_up=all(each.is_up for each in told),
            epoch=_known(min, [each.epoch for each in told]),
            parked_count=_known(sum, [each.parked_count for each in told]),
            lag_ms=_known(max, [each.lag_ms for each in told]),
        )


def _known(merge: Callable[[list[int]], int], values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return merge(known) if known else None


def status_reader_of(database: Database, client: Any, engine: Engine) -> StatusReader:
    parts = [
        (StatusReader(database, OutboxConsumer(client, client, part.keys), part.settings.partition), part.scripts)
        for part in engine.parts
    ]
    return (
        parts[0][0]
        if len(parts) == 1
        else StatusReaderOfAll(database, OutboxConsumer(client, client, engine.keys), parts)
    )
