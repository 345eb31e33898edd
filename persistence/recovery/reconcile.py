"""Reconcile: a store that lost its last writes, set right by history.

History has everything such a store ever told, and more. So where the two differ history wins: a task that ended there
leaves the queue, one that the store never heard of comes back, one that went on goes on from there. What history could
not write but keeps parked counts as known, and what was purged has ended.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import statement
from tideq.persistence.recovery.context import RecoveryContext
from tideq.persistence.recovery.parked import ParkedSnapshot, parked_tasks
from tideq.persistence.recovery.rebuild import FETCH_COUNT, LIVE, put_back, put_keys_and_dead_letters, rows_of
from tideq.persistence.tombstones import purged_tasks
from tideq.queue_core.outbox.consumer import FIRST_ID, entry_order
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.restore import StoreStatus

PURGED = "purged"
"""Where a task is that history has nothing of but a tombstone."""


class TaskVersion(NamedTuple):
    """Where a task is, according to one side."""

    state: str
    version: int


class Difference(NamedTuple):
    task_id: str
    in_store: TaskVersion | None
    in_history: TaskVersion


class Reconciliation:
    def __init__(self, ground: RecoveryContext, goes_on: Callable[[], None], page_count: int = FETCH_COUNT) -> None:
        """`goes_on` is called after every part of the work."""
        self._page_count = page_count
        self._connection, self._restoration, self._checkpoints, self._settings, self._belonging = ground
        self._goes_on = goes_on

    async def differences(self) -> AsyncGenerator[Difference]:
        """What history knows better. What the store knows better is on its way to history."""
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                for difference in batch:
                    yield difference
        for difference, _ in await self._parked():
            yield difference

    async def run(
        self, facts: StoreStatus, checkpoint: Checkpoint, on_difference: Callable[[Difference], None] = lambda _: None
    ) -> str:
        """Mend every difference and open the store under a new epoch, which is returned."""
        epoch = max(checkpoint.epoch, int(facts.epoch)) + 1
        sealed = await self._restoration.close(facts, checkpoint.now_ms)
        entered = Checkpoint(epoch, _replicated(facts, checkpoint), checkpoint.now_ms, checkpoint.event_count)
        await self._checkpoints.enter_epoch(self._connection, entered)
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                for difference in batch:
                    on_difference(difference)
                await self._mend(batch)
        for difference, task in await self._parked():
            on_difference(difference)
            await self._restoration.put_tasks([task.restored])
        await put_keys_and_dead_letters(self._connection, self._restoration, self._settings.retention, self._belonging)
        await self._restoration.enter(sealed, str(epoch), checkpoint.now_ms, gives_workers_time=True)
        return str(epoch)

    async def _mend(self, differences: Sequence[Difference]) -> None:
        purged = [each.task_id for each in differences if each.in_history.state == PURGED]
        task_ids = [each.task_id for each in differences if each.in_history.state != PURGED]
        await self._restoration.remove(purged)
        if not task_ids:
            return
        rows = await (await self._connection.execute(statement("some_tasks"), (task_ids,))).fetchall()
        await put_back(self._connection, self._restoration, rows)

    async def _batches(self) -> AsyncGenerator[list[Difference]]:
        """First what the store has of an older version, then what it has not at all."""
        async for page in self._restoration.feed.known_ids(self._page_count):
            ids = [text(task_id) for task_id in page]
            purged = await self._purged(ids)
            rest = [task_id for task_id in ids if task_id not in {each.task_id for each in purged}]
            rows = await (await self._connection.execute(statement("standings"), (rest,))).fetchall()
            yield [*purged, *(each for each in await self._compare(rows) if each.in_store is not None)]
        narrowed = (self._belonging.bytes,) * 2
        async with rows_of(self._connection, "live_standings", (LIVE, *narrowed)) as cursor:
            while rows := await cursor.fetchmany(self._page_count):
                missing = [each for each in await self._compare(rows) if each.in_store is None]
                own = await self._belonging.own([each.task_id for each in missing])
                yield [each for each in missing if each.task_id in own]

    async def _purged(self, task_ids: Sequence[str]) -> list[Difference]:
        """Lives of tasks that the store has and that were purged; a later life of such an id comes back by itself."""
        lives = await purged_tasks(self._connection, task_ids)
        records = await self._restoration.records(list(lives)) if lives else {}
        return [
            Difference(
                task_id, TaskVersion(record.text("state"), record.number("version")), TaskVersion(PURGED, life.version)
            )
            for task_id, life in lives.items()
            if (record := records.get(task_id)) and record.number("created_ms") <= life.created_ms
        ]

    async def _parked(self) -> list[tuple[Difference, ParkedSnapshot]]:
        """Of tasks with parked events, those that the store has an older version of, or should have and has not."""
        tasks = await parked_tasks(self._connection, self._settings.partition)
        by_id = {task.restored.task_id: task for task in tasks}
        rows = [(id_, task.record.text("state"), task.record.number("version")) for id_, task in by_id.items()]
        differences = await self._compare(rows)
        return [
            (each, by_id[each.task_id])
            for each in differences
            if each.in_store is not None or each.in_history.state in LIVE
        ]

    async def _compare(self, rows: Sequence[tuple[Any, ...]]) -> list[Difference]:
        if not rows:
            return []
        records = await self._restoration.records([task_id for task_id, _, _ in rows])
        self._goes_on()
        found: list[Difference] = []
        for task_id, state, version in rows:
            if task_id in records and records[task_id] is None:
                # Perhaps written by a later version, and then newer than what history has: it stays as it is.
                continue
            record = records.get(task_id)
            in_store = TaskVersion(record.text("state"), record.number("version")) if record else None
            if in_store is None or in_store.version < version:
                found.append(Difference(task_id, in_store, TaskVersion(state, version)))
        return found


def _replicated(facts: StoreStatus, checkpoint: Checkpoint) -> str:
    """Up to which entry of the stream history has everything: a sound store may be ahead of it."""
    if int(facts.epoch) > checkpoint.epoch:
        return FIRST_ID
    return min(facts.last_entry_id, checkpoint.entry_id, key=entry_order)
