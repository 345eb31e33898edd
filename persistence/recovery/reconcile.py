"""Reconcile: repairs a store that lost its last writes, from history.

History has every write that such a store still has, and more. So history wins where they differ: a task that ended in
history leaves the queue, a missing task is restored, and a task of an older version is replaced. Parked events count as
history, and purged tasks as ended.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import statement
from tideq.persistence.recovery.parked import ParkedSnapshot, parked_tasks
from tideq.persistence.recovery.rebuild import (
    FETCH_COUNT,
    LIVE,
    RecoveryContext,
    put_keys_and_dead_letters,
    restore_tasks,
    rows_of,
)
from tideq.persistence.tombstones import purged_tasks
from tideq.queue_core.outbox.reader import FIRST_ID, entry_order
from tideq.queue_core.scripts.replies import text
from tideq.queue_core.store.restore import StoreStatus

PURGED = "purged"
"""The state of a task of which history has only a tombstone."""


class TaskVersion(NamedTuple):
    """A task's state and version in the store or in history."""

    state: str
    version: int


class Difference(NamedTuple):
    task_id: str
    in_store: TaskVersion | None
    in_history: TaskVersion


class Reconciliation:
    def __init__(self, context: RecoveryContext, on_step: Callable[[], None], page_count: int = FETCH_COUNT) -> None:
        """`on_step` is called after every page."""
        self._page_count = page_count
        self._connection, self._restoration, self._checkpoints, self._settings, self._owner = context
        self._on_step = on_step

    async def differences(self) -> AsyncGenerator[Difference]:
        """Yields tasks that are newer in history. Tasks that are newer in the store will be replicated."""
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                for difference in batch:
                    yield difference
        for difference, _ in await self._parked():
            yield difference

    async def run(
        self, status: StoreStatus, checkpoint: Checkpoint, on_difference: Callable[[Difference], None] = lambda _: None
    ) -> str:
        """Repairs every difference, and opens the store under a new epoch, which is returned."""
        epoch = max(checkpoint.epoch, int(status.epoch)) + 1
        closed = await self._restoration.close(status, checkpoint.now_ms)
        entered = Checkpoint(epoch, _replicated(status, checkpoint), checkpoint.now_ms, checkpoint.event_count)
        await self._checkpoints.enter_epoch(self._connection, entered)
        async with aclosing(self._batches()) as batches:
            async for batch in batches:
                for difference in batch:
                    on_difference(difference)
                await self._repair(batch)
        for difference, task in await self._parked():
            on_difference(difference)
            await self._restoration.put_tasks([task.restored])
        await put_keys_and_dead_letters(self._connection, self._restoration, self._settings.retention, self._owner)
        await self._restoration.enter(closed, str(epoch), checkpoint.now_ms, gives_workers_time=True)
        return str(epoch)

    async def _repair(self, differences: Sequence[Difference]) -> None:
        purged = [each.task_id for each in differences if each.in_history.state == PURGED]
        task_ids = [each.task_id for each in differences if each.in_history.state != PURGED]
        await self._restoration.remove(purged)
        if not task_ids:
            return
        rows = await (await self._connection.execute(statement("some_tasks"), (task_ids,))).fetchall()
        await restore_tasks(self._connection, self._restoration, rows)

    async def _batches(self) -> AsyncGenerator[list[Difference]]:
        """Yields first the tasks that the store has in an older version, then those it lacks."""
        async for page in self._restoration.outbox.task_ids(self._page_count):
            ids = [text(task_id) for task_id in page]
            purged = await self._purged(ids)
            rest = [task_id for task_id in ids if task_id not in {each.task_id for each in purged}]
            rows = await (await self._connection.execute(statement("task_versions"), (rest,))).fetchall()
            yield [*purged, *(each for each in await self._compare(rows) if each.in_store is not None)]
        narrowed = (self._owner.id_bytes,) * 2
        async with rows_of(self._connection, "live_versions", (LIVE, *narrowed)) as cursor:
            while rows := await cursor.fetchmany(self._page_count):
                missing = [each for each in await self._compare(rows) if each.in_store is None]
                own = await self._owner.select_owned([each.task_id for each in missing])
                yield [each for each in missing if each.task_id in own]

    async def _purged(self, task_ids: Sequence[str]) -> list[Difference]:
        """Returns tasks that the store has although they were purged; a later task of the same id is left alone."""
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
        """Returns tasks with parked events that the store has in an older version, or lacks although they are live."""
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
        self._on_step()
        found: list[Difference] = []
        for task_id, state, version in rows:
            if task_id in records and records[task_id] is None:
                # The record is unreadable: a later version may have written it, and it may be newer than history.
                continue
            record = records.get(task_id)
            in_store = TaskVersion(record.text("state"), record.number("version")) if record else None
            if in_store is None or in_store.version < version:
                found.append(Difference(task_id, in_store, TaskVersion(state, version)))
        return found


def _replicated(status: StoreStatus, checkpoint: Checkpoint) -> str:
    """Returns the stream entry up to which history has everything; a store without lost writes may be ahead."""
    if int(status.epoch) > checkpoint.epoch:
        return FIRST_ID
    return min(status.last_entry_id, checkpoint.entry_id, key=entry_order)
