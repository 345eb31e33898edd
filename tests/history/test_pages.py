"""Of what grows with the queue no more than a page is asked for at once, from the store or from PostgreSQL."""

from typing import Any

import pytest
from psycopg import AsyncCursor, AsyncServerCursor

from tests.contract.situations import held
from tests.history.population import ROOMY
from tests.history.situations import replicate_all
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import Database
from tideq.persistence.partition_owner import OWNS_ALL
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.recovery.rebuild import RecoveryContext, put_keys_and_dead_letters
from tideq.persistence.recovery.reconcile import Reconciliation
from tideq.queue_core.attempts import Failure
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.restore import StoreRestore
from tideq.queue_core.task import NewTask

PAGE = 10
ABOVE_ONE_REPLY = 600
"""A hash of up to 512 fields is always read at once."""


@pytest.fixture
def settings() -> QueueSettings:
    return ROOMY


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each answer of PostgreSQL's brought."""
    counts: list[int] = []
    for kind, name in ((AsyncCursor, "fetchall"), (AsyncServerCursor, "fetchall"), (AsyncServerCursor, "fetchmany")):
        fetch: Any = getattr(kind, name)

        async def counted(*arguments: Any, fetch: Any = fetch) -> Any:
            rows = await fetch(*arguments)
            counts.append(len(rows))
            return rows

        monkeypatch.setattr(kind, name, counted)
    return counts


async def test_the_ids_that_the_store_has_come_in_pages(kit: Kit) -> None:
    task_ids = await _submit(kit, ABOVE_ONE_REPLY)

    pages = [page async for page in OutboxConsumer(kit.client, kit.keys).task_ids(PAGE)]

    assert {task_id.decode() for page in pages for task_id in page} == set(task_ids)
    assert max(map(len, pages)) < ABOVE_ONE_REPLY / 4


async def test_keys_and_dead_letters_are_put_back_in_pages(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, fetched: list[int]
) -> None:
    task_ids = await _submit(kit, 3 * PAGE + 1)
    await _die(kit, 2 * PAGE + 1)
    await replicate_all(kept, store.url, kit, migrated)
    before = await kit.insight.snapshot()
    keys = [key async for key in kit.client.scan_iter(match=kit.keys.prefix("idempotency") + "*")]
    await kit.client.delete(*keys, kit.keys.key("dead"))
    fetched.clear()

    async with migrated.session() as connection:
        restoration = StoreRestore(kept.client, kit.settings)
        await put_keys_and_dead_letters(connection, restoration, kit.settings.retention, page_count=PAGE)

    assert max(fetched) == PAGE
    assert (await kit.insight.snapshot()).dead == before.dead
    assert await _submit(kit, 3 * PAGE + 1) == task_ids, "every key stands for its task"


async def test_what_a_store_lost_is_looked_for_in_pages(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, fetched: list[int]
) -> None:
    task_ids = await _submit(kit, 3 * PAGE + 1)
    await replicate_all(kept, store.url, kit, migrated)
    before = {name: await kit.client.dump(kit.keys.key(name)) for name in ("records", "queue")}
    await kit.client.delete(*map(kit.keys.key, before))
    restoration = StoreRestore(kept.client, kit.settings)
    checkpoints = Checkpoints(migrated, kit.settings.partition)
    fetched.clear()

    async with migrated.session() as connection:
        ground = RecoveryContext(connection, restoration, checkpoints, kit.settings, OWNS_ALL)
        differences = Reconciliation(ground, lambda: None, PAGE).differences()
        missed = [each.task_id async for each in differences]

    for name, content in before.items():
        await kit.client.restore(kit.keys.key(name), 0, content)
    assert sorted(missed) == sorted(task_ids)
    assert max(fetched) == PAGE


async def _submit(kit: Kit, count: int) -> list[str]:
    tasks = [NewTask(task_type="keyed", idempotency_key=f"key-{number}") for number in range(count)]
    return [each.task_id for each in await kit.queue.submit_many(tasks)]


async def _die(kit: Kit, count: int) -> None:
    await kit.worker("w1", capacity=count)
    tasks = (await kit.queue.claim("w1", count)).tasks
    assert len(tasks) == count
    await kit.attempts.start("w1", held(*tasks))
    await kit.attempts.fail("w1", [Failure(*each, b"{}", verdict="discard") for each in held(*tasks)])
