"""A replicator that lingers: many events share a batch, nobody who asks is kept waiting, and nothing is lost with it.

It lingers longer here than any test takes, so whatever is written was hurried.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.api.running import environ
from tests.contract.situations import complete_all, started_count, submit_count
from tests.history.servers import command
from tests.history.situations import checkpoint, rows, until
from tests.history.test_freshness import freshness_of
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api.settings import read_service_settings
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, replicators_of
from tideq.persistence.replication.batch import Batch
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.background import background_task
from tideq.queue_core.settings import QueueSettings, SettingsError

LONG_MS = 60_000 * 60
PATIENCE_SECONDS = 45
VERSIONS = "SELECT task_id::text, array_agg(version ORDER BY version) FROM task_events GROUP BY task_id"


@contextlib.asynccontextmanager
async def lingering(kept: OpenStore, store: StoreUnderTest, kit: Kit) -> AsyncGenerator[list[Batch]]:
    """What it has written so far."""
    batches: list[Batch] = []
    async with (
        replicators_of(kept, store.url, batches.append, LONG_MS) as replicator,
        background_task(replicator.run_for_ever()),
    ):
        yield batches


async def live(kit: Kit, count: int) -> list[str]:
    await complete_all(kit, tasks := await started_count(kit, count))
    return [task.task_id for task in tasks]


async def test_whole_lives_of_many_tasks_are_one_batch_and_each_one_row_written_once(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker(task_types=("resize",))
    freshness = freshness_of(kit, kept, migrated)
    async with lingering(kept, store, kit) as batches:
        await kit.submit(task_type="other")
        assert await freshness.wait_until_caught_up(PATIENCE_SECONDS)
        for _ in range(5):
            await live(kit, 2)
        assert await freshness.wait_until_caught_up(PATIENCE_SECONDS)
        await until(lambda: _has(batches, 2))

    assert [len(batch.changes) for batch in batches] == [1, 40]
    assert await rows(migrated, "SELECT count(DISTINCT xmin::text), count(*) FROM task_events") == [(2, 41)]
    places = {place for (place,) in await rows(migrated, "SELECT ctid::text FROM tasks")}
    assert places == {f"(0,{number})" for number in range(1, 12)}, "a row that is updated moves to another place"


async def _has(batches: list[Batch], count: int) -> bool:
    return len(batches) >= count


async def test_one_word_hurries_a_replicator_for_all_who_wait(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    freshness = freshness_of(kit, kept, migrated)
    async with lingering(kept, store, kit):
        await submit_count(kit, 3)
        assert all(await asyncio.gather(*(freshness.wait_until_caught_up(PATIENCE_SECONDS) for _ in range(40))))

    told: Any = await kit.client.xinfo_stream(kit.keys.key("flush_request"))
    assert 1 <= told["entries-added"] < 40
    assert told["length"] == 1


async def test_who_waits_for_nothing_hurries_nobody(kit: Kit, kept: OpenStore, migrated: Database) -> None:
    assert await freshness_of(kit, kept, migrated).wait_until_caught_up(0)

    assert not await kit.client.exists(kit.keys.key("flush_request"))


async def test_a_word_that_comes_before_anyone_lingers_is_not_lost(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    freshness = freshness_of(kit, kept, migrated)
    await kit.submit()
    assert not await freshness.wait_until_caught_up(0)

    async with lingering(kept, store, kit) as batches:
        await until(lambda: _has(batches, 1))


async def test_killed_while_it_lingers_it_has_lost_nothing_and_asked_to_end_it_does_so_at_once(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    history_settings: HistorySettings,
    tmp_path: Path,
) -> None:
    settings = environ(
        store.url,
        kit.settings.queue_name,
        DATABASE_URL=history_settings.database_url,
        TIDEQ_REPLICATION_LINGER_MS="60000",
    )
    await kit.worker()
    freshness = freshness_of(kit, kept, migrated)
    with command(settings, tmp_path / "log", "replicate") as first:
        first_ids = await live(kit, 3)
        assert await freshness.wait_until_caught_up(PATIENCE_SECONDS)
        reached = await checkpoint(kit, migrated)
        later_ids = await live(kit, 3)
        await until(lambda: _lingers(kit))
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert await checkpoint(kit, migrated) == reached

    with command(settings, tmp_path / "log", "replicate") as second:
        assert await freshness.wait_until_caught_up(PATIENCE_SECONDS)
        last_id = await kit.submit()
        await until(lambda: _lingers(kit))
        second.terminate()
        assert second.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()

    assert dict(await rows(migrated, VERSIONS)) == {task_id: [1, 2, 3, 4] for task_id in first_ids + later_ids}
    assert await kit.read(last_id)


async def _lingers(kit: Kit) -> bool:
    """Somebody waits at a stream although the outbox has something new: it must be for haste."""
    return any("b" in client["flags"] and client["cmd"] == "xread" for client in await kit.client.client_list())


def test_a_replicator_may_be_told_not_to_linger_and_not_to_linger_for_ever(queue_settings: QueueSettings) -> None:
    settings = {"TIDEQ_QUEUE": queue_settings.queue_name}

    assert read_service_settings({**settings, "TIDEQ_REPLICATION_LINGER_MS": "0"}).history.linger_ms == 0
    for wrong in ("-1", "60001", "soon"):
        with pytest.raises(SettingsError, match="TIDEQ_REPLICATION_LINGER_MS"):
            read_service_settings({**settings, "TIDEQ_REPLICATION_LINGER_MS": wrong})
