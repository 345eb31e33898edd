"""Waiting for history: it says yes only of what history has."""

import asyncio

import pytest

from tests.history.situations import execute, replicating, until
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import Database
from tideq.persistence.read.lag import PartitionLag
from tideq.persistence.recovery.open_store import OpenStore
from tideq.queue_core.outbox.consumer import OutboxConsumer


def freshness_of(kit: Kit, kept: OpenStore, database: Database) -> PartitionLag:
    checkpoints = Checkpoints(database, kit.settings.partition)
    return PartitionLag(checkpoints, OutboxConsumer(kept.client, kit.keys), kept.engine.scripts)


async def test_history_that_is_read_into_catches_up(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.submit()

    async with replicating(kept, store.url, kit):
        assert await freshness_of(kit, kept, migrated).wait_until_caught_up(20)


async def test_history_that_nobody_writes_does_not(kit: Kit, kept: OpenStore, migrated: Database) -> None:
    await kit.submit()

    assert not await freshness_of(kit, kept, migrated).wait_until_caught_up(0.05)


async def test_a_store_replaced_meanwhile_has_lost_what_was_waited_for(
    kit: Kit, kept: OpenStore, migrated: Database
) -> None:
    """A higher epoch is further than the entry that was waited for, and history never heard of that entry."""
    await kit.submit()
    waiting = asyncio.create_task(freshness_of(kit, kept, migrated).wait_until_caught_up(20))
    await until(lambda: _has_looked(waiting))

    await execute(migrated, "UPDATE checkpoints SET epoch = epoch + 1, entry_id = '0-0'")

    assert await waiting is False


async def _has_looked(waiting: asyncio.Task[bool]) -> bool:
    await asyncio.sleep(0.05)
    return not waiting.done()


@pytest.mark.parametrize("now_ms", [None, b"soon", b"9" * 400])
async def test_the_lag_behind_an_entry_that_does_not_say_its_instant_is_told_by_its_place(
    kit: Kit, kept: OpenStore, migrated: Database, now_ms: bytes | None
) -> None:
    moment = {} if now_ms is None else {"now_ms": now_ms}
    entry_id = await kit.client.xadd(kit.keys.key("outbox"), {"of": "a later version", **moment})
    await kit.submit()
    written_at_ms = int(entry_id.partition(b"-")[0])

    assert await freshness_of(kit, kept, migrated).lag_ms(written_at_ms + 7_000) == 7_000
