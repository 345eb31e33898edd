"""Reviving a task that only history has, while others clean up: held at the instants that matter with row locks."""

import asyncio

import pytest

from tests.history.situations import replicating, rows, until, until_replicated, until_somebody_waits_for
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.history import History
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.settings import QueueSettings, Retention
from tideq.queue_core.states import TaskState


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(retention=Retention(result_ttl_ms=20))


@pytest.fixture
def archive(
    kept: OpenStore, migrated: Database, queue_settings: QueueSettings, history_settings: HistorySettings
) -> History:
    return History(migrated, kept.engine, kept.client, queue_settings, history_settings)


async def _forgotten(kit: Kit, kept: OpenStore, store: StoreUnderTest, database: Database) -> str:
    """A cancelled task that only history has."""
    task_id = await kit.submit()
    await kit.queue.cancel(task_id)

    async def is_gone() -> bool:
        await kit.queue.sweep()
        return await kit.queue.read_many([task_id]) == [None]

    async with replicating(kept, store.url, kit):
        await until_replicated(kit, database)
        await until(is_gone)
    return task_id


async def test_a_task_that_is_being_revived_is_not_removed(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, migrated: Database, archive: History
) -> None:
    task_id = await _forgotten(kit, kept, store, migrated)

    async with archive.expired.locked(task_id) as held:
        removing = asyncio.create_task(archive.cleanup.remove([task_id]))
        await until_somebody_waits_for(migrated, "tasks")
        await kit.queue.retry(task_id, kept=held)
    removed = await removing

    assert removed == 0
    async with replicating(kept, store.url, kit):
        await until_replicated(kit, migrated)
    assert [step.version for step in await archive.tasks.transitions(task_id)] == [1, 2, 3]
    assert await rows(migrated, "SELECT state FROM tasks") == [("queued",)]


async def test_a_task_that_is_being_removed_is_not_revived(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, migrated: Database, archive: History
) -> None:
    task_id = await _forgotten(kit, kept, store, migrated)

    async def hold() -> bool:
        async with archive.expired.locked(task_id) as held:
            return held is not None

    async with migrated.session() as remover, remover.transaction():
        await remover.execute("DELETE FROM tasks")
        holding = asyncio.create_task(hold())
        await until_somebody_waits_for(migrated, "tasks")
    assert not await holding


async def test_a_kept_task_comes_back_as_it_was(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, migrated: Database, archive: History
) -> None:
    task_id = await kit.submit(
        "resize",
        parameters=b'{"a": 1.0,\n"b": "\\u00e9"}',
        priority="low",
        required_capabilities=("gpu",),
        tags={"x": "y"},
        idempotency_key="k",
        searchable={"a": "1.0"},
        head_start_ms=3_000,
    )
    before = await kit.read(task_id)
    await kit.queue.cancel(task_id)
    async with replicating(kept, store.url, kit):
        await until_replicated(kit, migrated)

    async with archive.expired.locked(task_id) as held:
        assert held is not None
        await kit.queue.purge(task_id)
        await kit.queue.retry(task_id, kept=held)

    after = await kit.read(task_id)
    assert after.definition == before.definition
    assert (after.state, after.version, after.priority) == (TaskState.QUEUED, 3, "low")
    assert after.rank - after.eligible_at_ms == before.rank - before.eligible_at_ms


async def test_history_finds_one_some_and_none(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, migrated: Database, archive: History
) -> None:
    ids = [await kit.submit() for _ in range(3)]
    async with replicating(kept, store.url, kit):
        await until_replicated(kit, migrated)
    never = "0192f0c1-2b3c-7d4e-8f50-112233445566"

    found = await archive.tasks.find_many([*ids[:2], never])

    assert sorted(found) == ids[:2]
    one, none = await archive.tasks.find(ids[2]), await archive.tasks.find(never)
    assert (one.task_id if one else None, none) == (ids[2], None)
    assert await archive.tasks.find("nonsense") is None
    assert await archive.tasks.transitions(never) == []
