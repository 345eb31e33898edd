"""History of several partitions: replicated each by itself, and given back to the one that was lost."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator

import pytest

from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.history import History
from tideq.persistence.recovery.open_store import OpenStore, open_store, replicators_of
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock
from tideq.queue_core.task import NewTask
from tideq.queue_core.task_id import partition_of

PATIENCE_SECONDS = 60
HOUR_MS = 3_600_000


@pytest.fixture
def queue_settings() -> QueueSettings:
    return QueueSettings(queue_name=uuid.uuid4().hex[:12], partitions=(4,))


@contextlib.asynccontextmanager
async def opened(url: str, settings: QueueSettings, database_url: str) -> AsyncGenerator[tuple[OpenStore, Kit]]:
    """The store in custody, with replicators at work, which linger until somebody waits for them."""
    async with open_store(url, settings, HistorySettings(database_url=database_url)) as kept:
        clock = StoreClock(kept.client, *(part.keys for part in kept.engine.parts))
        async with (
            replicators_of(kept, url, linger_ms=HOUR_MS) as replicator,
            background_task(replicator.run_for_ever()),
        ):
            yield kept, Kit(kept.client, settings, kept.engine.keys, kept.engine, clock)


async def test_one_partition_that_was_lost_gets_its_tasks_back_and_the_others_keep_theirs(
    store: StoreUnderTest, queue_settings: QueueSettings, database_url: str
) -> None:
    async with Database(database_url, queue_settings.queue_name) as database:
        await migrate(database)
        await Partitions(database, HistorySettings()).make_ahead(time.time_ns() // 1_000_000)
    async with opened(store.url, queue_settings, database_url) as (kept, kit):
        waiting = [await kit.submit(idempotency_key=str(n)) for n in range(12)] + [
            await kit.submit() for _ in range(12)
        ]
        batch = [NewTask(task_type="resize", idempotency_key=f"b{n}") for n in range(12)]
        together = [answer.task_id for answer in await kit.queue.submit_many(batch)]
        await kit.worker(capacity=100)
        held = await kit.started()
        done = await kit.started()
        await kit.complete(done)
        assert kept.database is not None
        archive = History(kept.database, kept.engine, kept.client, queue_settings, HistorySettings())
        assert await archive.lag.wait_until_caught_up(PATIENCE_SECONDS)
        found = await archive.tasks.find(done.task_id)
        assert found is not None
        assert found.state == "completed"
        lost = (partition_of(together[0]) + 1) % len(kept.engine.parts)
        tag = kept.engine.parts[lost].keys.tag
        keys = [key async for key in kept.unguarded_client.scan_iter(match=tag.replace("{", "[{]") + "*")]
        await kept.unguarded_client.delete(*keys)

        async def is_back() -> bool:
            with contextlib.suppress(Exception):
                return (await kit.engine.parts[lost].insight.stats()).total_depth > 0
            return False

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await is_back():
                await asyncio.sleep(0.05)

        live = {*waiting} - {held.task_id, done.task_id}
        tasks = await kit.queue.read_many(sorted(live))
        assert [task.state for task in tasks if task is not None] == ["queued"] * 22
        assert await kit.submit(idempotency_key="3") == waiting[3]
        assert await kit.complete(held) == "completed"
        depths = [(await part.insight.stats()).total_depth for part in kept.engine.parts]
        assert sum(depths) == 34
        assert [answer.task_id for answer in await kit.queue.submit_many(batch)] == together
        await kit.assert_sound()
