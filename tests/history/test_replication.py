"""What a replicator promises at every instant, shown by holding it at that instant with locks of PostgreSQL."""

import contextlib

import pytest
from structlog.testing import capture_logs

from tests.contract.situations import complete_all, started_count, submit_count
from tests.history.situations import (
    checkpoint,
    execute,
    forget_everything,
    replicate_all,
    replicating,
    rows,
    until,
    until_replicated,
    until_somebody_waits_for,
)
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, replicators_of
from tideq.persistence.replication.batch import Batch, changes_in
from tideq.persistence.replication.replicator import KEPT_ENTRIES, LOCK, Replicator
from tideq.persistence.replication.writer import Writer
from tideq.queue_core import duties
from tideq.queue_core.background import background_task
from tideq.queue_core.duties import Duties
from tideq.queue_core.engine import assemble_engine
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID
from tideq.queue_core.store.access_keys import AccessKeys
from tideq.queue_core.store.connect import connect_listener


async def test_rows_and_checkpoint_are_committed_together(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    ids = await submit_count(kit, 10)

    async with migrated.session() as blocker, replicating(kept, store.url, kit):
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE task_events IN EXCLUSIVE MODE")
            pid = await until_somebody_waits_for(migrated, "task_events")
            assert (await checkpoint(kit, migrated)).entry_id == FIRST_ID
            await execute(migrated, "SELECT pg_terminate_backend(%s)", pid)
        await until_replicated(kit, migrated)

    assert await rows(migrated, "SELECT task_id::text, version FROM task_events ORDER BY task_id") == [
        (task_id, 1) for task_id in ids
    ]


async def test_nothing_is_trimmed_or_forgotten_before_it_is_committed(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker()
    for _ in range(KEPT_ENTRIES + 200):
        await submit_count(kit, 1)
    await complete_all(kit, await started_count(kit, 10))
    outbox, expiring = kit.keys.key("outbox"), kit.keys.key("expiring")
    written = await kit.client.xlen(outbox)

    async with migrated.session() as blocker, replicating(kept, store.url, kit):
        async with blocker.transaction():
            await blocker.execute("SELECT FROM checkpoints FOR UPDATE")
            await until_somebody_waits_for(migrated, "checkpoints")
            assert await kit.client.xlen(outbox) == written
            assert await kit.client.zcard(expiring) == 0
        await until_replicated(kit, migrated)
        await until(lambda: kit.client.zcard(expiring))

    assert await kit.client.xlen(outbox) == KEPT_ENTRIES


async def test_a_task_that_ended_just_before_its_replicator_died_is_forgotten_all_the_same(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker()
    await complete_all(kit, tasks := await started_count(kit, 3))
    await _replicate_without_acknowledging(kit, migrated, store)
    assert await kit.client.zcard(kit.keys.key("expiring")) == 0

    async with replicating(kept, store.url, kit):
        await until(lambda: kit.client.zcard(kit.keys.key("expiring")))
    await kit.clock.advance(kit.settings.retention.result_ttl_ms)
    await kit.queue.sweep()

    assert await kit.queue.read_many([task.task_id for task in tasks]) == [None] * 3


async def _replicate_without_acknowledging(kit: Kit, database: Database, store: StoreUnderTest) -> None:
    """One that the store refuses from the moment its rows are committed: as if it had died there."""
    engine, listener = assemble_engine(kit.client, kit.settings), connect_listener(store.url)
    await engine.queue.open()
    replicator = Replicator(database, engine, OutboxConsumer(kit.client, kit.keys, listener))
    async with (
        contextlib.aclosing(listener),
        database.session() as blocker,
        background_task(replicator.run_for_ever(Duties())),
    ):
        async with blocker.transaction():
            await blocker.execute("SELECT FROM checkpoints FOR UPDATE")
            await until_somebody_waits_for(database, "checkpoints")
            engine.scripts.epoch = "another"
        await until_replicated(kit, database)


async def test_an_older_version_never_overwrites_a_newer_one(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.submit()
    await kit.worker()
    task = await kit.started()
    entries = await OutboxConsumer(kit.client, kit.keys).read(FIRST_ID)
    await kit.complete(task)
    await replicate_all(kept, store.url, kit, migrated)

    await execute(migrated, "DELETE FROM task_events WHERE version = 3")
    before = await checkpoint(kit, migrated)
    async with migrated.session() as connection:
        writer = Writer(connection, Checkpoints(migrated, 0), 0, OutboxConsumer(kit.client, kit.keys).definitions)
        await writer.prepare()
        await writer.write(Batch(entries[-1:], changes_in(entries[-1]), {}, None, is_full=False), before)

    assert await rows(migrated, "SELECT state, version FROM tasks") == [("completed", 4)]
    assert await rows(migrated, "SELECT state FROM task_events WHERE version = 3") == [("executing",)]


@pytest.mark.parametrize(("max_staged", "size"), [(0, 0), (20_000, 8_192)], ids=["truncated", "deleted"])
async def test_what_was_staged_for_one_batch_is_not_there_for_the_next(
    kit: Kit, kept: OpenStore, migrated: Database, max_staged: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tideq.persistence.replication.writer.MAX_STAGED", max_staged)
    await kit.submit()
    await kit.worker()
    await kit.complete(await kit.started())
    feed = OutboxConsumer(kit.client, kit.keys)
    entries, before = await feed.read(FIRST_ID), await checkpoint(kit, migrated)

    async with migrated.session() as connection:
        writer = Writer(connection, Checkpoints(migrated, 0), 0, feed.definitions)
        await writer.prepare()
        for entry in entries:
            changes = changes_in(entry)
            definitions = await feed.definitions([change.task_id for change in changes])
            before = await writer.write(Batch([entry], changes, definitions, None, is_full=False), before)
            left = await connection.execute("SELECT count(*) FROM staged")
            assert await left.fetchone() == (0,)
        used = await connection.execute("SELECT pg_relation_size('staged')")
        assert await used.fetchone() == (size,)

    assert await rows(migrated, "SELECT state, version FROM tasks") == [("completed", 4)]


async def test_a_replicator_that_leads_again_copies_what_changed_while_others_led(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """Paused, resumed by way of another leader, and paused again just as before."""
    async with replicators_of(kept, store.url) as first:
        await kit.controls.pause("resize")
        async with background_task(first.run_for_ever()):
            await until(lambda: _is_copied(migrated, b"resize"))
        await kit.controls.resume("resize")
        async with replicating(kept, store.url, kit):
            await until(lambda: _is_copied(migrated, b"\x80"))
        await kit.controls.pause("resize")
        async with background_task(first.run_for_ever()):
            await until(lambda: _is_copied(migrated, b"resize"))


async def _is_copied(database: Database, word: bytes) -> bool:
    found = await rows(database, "SELECT content FROM side_data WHERE name = 'controls'")
    return bool(found) and word in bytes(found[0][0])


async def test_a_store_that_lost_everything_is_not_copied_over_what_history_keeps(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """Nobody calls the store here but the replicator; its own look is what brings custody in."""
    await AccessKeys(kit.client, kit.keys).create("ann", "admin", 1)
    await kit.worker()
    copied = "SELECT name, content FROM side_data ORDER BY name"
    async with replicating(kept, store.url, kit):
        await until(lambda: _is_fleet_copied(migrated))
        before = await rows(migrated, copied)
        await forget_everything(kit)
        await until(lambda: _is_at(kit, "2"))

    assert await rows(migrated, copied) == before
    assert [key.name for key in await AccessKeys(kit.client, kit.keys).all()] == ["ann"]


async def _is_fleet_copied(database: Database) -> bool:
    found = await rows(database, "SELECT FROM side_data WHERE name = 'fleet' AND content <> '\\x80'")
    return bool(found)


async def _is_at(kit: Kit, epoch: str) -> bool:
    return kit.engine.scripts.epoch == epoch


async def test_a_replicator_that_waits_for_its_turn_is_not_stale_long_after_its_session_was_ended(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a restart of PostgreSQL: it waits again, and all it waits for is that the other one ends."""
    monkeypatch.setattr(duties, "STALE_AFTER_SECONDS", 1.0)
    standing_by, name = Duties(), f"{migrated.schema}:{kit.settings.partition}"
    waiting = (
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = %s AND objid = hashtext(%s)"
    )

    async def waits() -> bool:
        return bool(await rows(migrated, waiting, LOCK, name))

    async def has_failed() -> bool:
        return bool(standing_by.error_of("replication"))

    async def is_well() -> bool:
        return not standing_by.stale and not standing_by.error_of("replication")

    await kit.submit()
    with capture_logs() as logs:
        async with replicating(kept, store.url, kit), replicators_of(kept, store.url) as second:
            await until_replicated(kit, migrated)
            async with background_task(second.run_for_ever(standing_by)):
                await until(waits)
                for (pid,) in await rows(migrated, waiting, LOCK, name):
                    await execute(migrated, "SELECT pg_terminate_backend(%s)", pid)
                await until(has_failed)
                await until(waits)
                await until(is_well)
                has_worked = standing_by.has_done("replication")

    assert not has_worked
    assert [each["duty"] for each in logs if each["event"] == "duty recovered"] == ["replication"]
