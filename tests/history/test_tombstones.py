"""What was purged stays purged for a day: in a store that lost writes, for a replicator that reads old ones."""

import pytest

from tests.history.situations import checkpoint, execute, forget_everything, replicate_all, rows
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.checkpoints import Checkpoints
from tideq.persistence.database import Database
from tideq.persistence.history import History
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.recovery.reconcile import PURGED
from tideq.persistence.recovery.store_guard import StoreCheck
from tideq.persistence.replication.batch import Batch, changes_in
from tideq.persistence.replication.rows import Change
from tideq.persistence.replication.writer import Writer
from tideq.persistence.schema.partitions import Partitions
from tideq.persistence.settings import DAY_MS, HistorySettings
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID, OutboxEntry
from tideq.queue_core.settings import QueueSettings, Retention

CHOSEN = "0192f0c1-2b3c-7d4e-8f50-002233445566"


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(retention=Retention(result_ttl_ms=20))


async def _copy(kit: Kit) -> dict[bytes, bytes]:
    """What a replica has by now."""
    keys = [key async for key in kit.client.scan_iter(match=f"*{kit.settings.queue_name}*")]
    return {key: await kit.client.dump(key) for key in keys}


async def _fail_over_to(copy: dict[bytes, bytes], kit: Kit) -> None:
    """What came after the copy is lost."""
    await forget_everything(kit)
    for key, content in copy.items():
        await kit.client.restore(key, 0, content)


async def _end(kit: Kit, task_id: str) -> None:
    await kit.queue.cancel(task_id)
    await kit.queue.purge(task_id)


async def test_a_task_purged_in_writes_that_a_fail_over_lost_does_not_run(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    purged = await kit.submit(idempotency_key="k")
    copy = await _copy(kit)
    await _end(kit, purged)
    other = await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await _fail_over_to(copy, kit)
    assert kept.guard

    told = [(each.task_id, each.in_history.state) async for each in kept.guard.differences()]
    verdict = await kept.guard.verify()

    assert verdict is StoreCheck.STORE_BEHIND, "IN_SYNC means that history was away for too long"
    assert told == [(purged, PURGED), (other, "queued")]
    assert await kit.queue.read_many([purged]) == [None]
    assert (await kit.read(other)).state == "queued"
    assert await kit.submit(idempotency_key="k") != purged, "its key is free, as it was"
    await kit.worker()
    assert purged not in [(await kit.claimed()).task_id for _ in range(2)]


async def test_an_id_submitted_anew_after_its_purge_runs_after_a_fail_over(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """A tombstone speaks of one life: the later one comes back although the store has the earlier."""
    await kit.submit(task_id=CHOSEN, task_type="earlier")
    copy = await _copy(kit)
    await _end(kit, CHOSEN)
    await kit.clock.advance(5)
    await kit.submit(task_id=CHOSEN, task_type="later")
    await replicate_all(kept, store.url, kit, migrated)
    later = await _copy(kit)
    assert kept.guard

    await _fail_over_to(copy, kit)
    await kept.guard.verify()
    assert (await kit.read(CHOSEN)).definition.task_type == "later"

    await _fail_over_to(later, kit)
    await kept.guard.verify()
    assert (await kit.read(CHOSEN)).definition.task_type == "later"


async def test_a_later_life_that_history_has_not_heard_of_stays(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.submit(task_id=CHOSEN, task_type="earlier")
    await _end(kit, CHOSEN)
    await replicate_all(kept, store.url, kit, migrated)
    await kit.clock.advance(5)
    await kit.submit(task_id=CHOSEN, task_type="later")
    assert kept.guard

    await kept.guard.reconcile()
    await kept.guard.verify()

    assert (await kit.read(CHOSEN)).definition.task_type == "later"


async def test_a_later_life_that_was_purged_too_does_not_run(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.submit(task_id=CHOSEN, task_type="earlier")
    await _end(kit, CHOSEN)
    await kit.clock.advance(5)
    await kit.submit(task_id=CHOSEN, task_type="later")
    await replicate_all(kept, store.url, kit, migrated)
    copy = await _copy(kit)
    await _end(kit, CHOSEN)
    await replicate_all(kept, store.url, kit, migrated)
    assert kept.guard

    await _fail_over_to(copy, kit)
    await kept.guard.verify()

    assert await kit.queue.read_many([CHOSEN]) == [None]


async def test_a_rebuild_brings_back_nothing_of_what_was_purged(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """Neither a task nor its idempotency key, which would stand for a task that nobody has."""
    purged = await kit.submit(idempotency_key="k")
    await replicate_all(kept, store.url, kit, migrated)
    await _end(kit, purged)
    await replicate_all(kept, store.url, kit, migrated)
    await forget_everything(kit)
    assert kept.guard

    await kept.guard.verify()

    assert await kit.queue.read_many([purged]) == [None]
    assert await kit.submit(idempotency_key="k") != purged


@pytest.mark.parametrize("version", [1, 7])
async def test_versions_of_an_older_epoch_are_not_taken_of_what_was_purged(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, version: int
) -> None:
    """As an old primary told them that had not heard of the purge."""
    purged, other = await kit.submit(), await kit.submit()
    feed = OutboxConsumer(kept.client, kit.keys)
    definitions = await feed.definitions([purged.encode(), other.encode()])
    old = [change for entry in await feed.read(FIRST_ID) for change in changes_in(entry)]
    await _end(kit, purged)
    await replicate_all(kept, store.url, kit, migrated)

    await _write_in_the_next_epoch(kit, migrated, feed, [_in_version(change, version) for change in old], definitions)

    assert await rows(migrated, "SELECT task_id::text FROM tasks") == [(other,)]
    assert await rows(migrated, "SELECT DISTINCT task_id::text FROM task_events") == [(other,)]


async def test_a_later_life_of_an_older_epoch_is_taken(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.submit(task_id=CHOSEN, task_type="earlier")
    await _end(kit, CHOSEN)
    await replicate_all(kept, store.url, kit, migrated)
    read = (await checkpoint(kit, migrated)).entry_id
    await kit.clock.advance(5)
    await kit.submit(task_id=CHOSEN, task_type="later")
    feed = OutboxConsumer(kept.client, kit.keys)
    late = [change for entry in await feed.read(read) for change in changes_in(entry)]

    await _write_in_the_next_epoch(kit, migrated, feed, late, await feed.definitions([CHOSEN.encode()]))

    assert await rows(migrated, "SELECT task_type FROM tasks") == [("later",)]


async def _write_in_the_next_epoch(
    kit: Kit, database: Database, feed: OutboxConsumer, late: list[Change], definitions: dict[bytes, bytes]
) -> None:
    await execute(database, "UPDATE checkpoints SET epoch = epoch + 1")
    before = await checkpoint(kit, database)
    async with database.session() as connection:
        checkpoints = Checkpoints(database, kit.settings.partition)
        writer = Writer(connection, checkpoints, kit.settings.partition, feed.definitions)
        await writer.prepare()
        batch = Batch([OutboxEntry("9-9", {})], late, definitions, None, is_full=False)
        await writer.write(batch, before)


def _in_version(change: Change, version: int) -> Change:
    number, state, _, rest = change.packed.split(b"\0", 3)
    packed = b"\0".join((number, state, b"%d" % version, rest))
    return Change("8-8", change.epoch, change.now_ms, change.task_id, packed, None)


async def test_what_a_clean_up_takes_from_history_alone_has_a_tombstone_too(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    task_id = await kit.submit()
    copy = await _copy(kit)
    await kit.queue.cancel(task_id)
    await replicate_all(kept, store.url, kit, migrated)
    await kit.clock.advance(1_000)
    await kit.queue.sweep()
    assert await kit.queue.read_many([task_id]) == [None]
    archive = History(migrated, kept.engine, kept.client, kit.settings, history_settings)
    assert kept.guard

    assert await archive.cleanup.remove([task_id]) == 1
    await _fail_over_to(copy, kit)
    await kept.guard.reconcile()
    await kept.guard.verify()

    assert await kit.queue.read_many([task_id]) == [None]


async def test_what_history_remembers_of_the_purged_and_of_ways_to_die_ends(
    migrated: Database, history_settings: HistorySettings
) -> None:
    """A tombstone after a day, a way to die when none of history died that way any more."""
    await execute(migrated, "INSERT INTO tombstones VALUES (%s, 1, 2, 3, now() - interval '25 hours')", CHOSEN)
    await execute(migrated, "INSERT INTO tombstones VALUES (gen_random_uuid(), 1, 2, 3, now() - interval '23 hours')")
    pattern = (
        "INSERT INTO dead_letter_patterns VALUES (%s, 't', 'r', 'm', 'epoch', now() - %s * interval '1 day', 1, 1)"
    )
    await execute(migrated, pattern, "old", history_settings.retention_ms / DAY_MS + 1)
    await execute(migrated, pattern, "new", history_settings.retention_ms / DAY_MS - 1)
    partitions = Partitions(migrated, history_settings)
    clocks = await partitions.clocks(await _now_ms(migrated))

    await partitions.prune(clocks, 30 * DAY_MS)

    assert await rows(migrated, "SELECT count(*) FROM tombstones WHERE task_id <> %s", CHOSEN) == [(1,)]
    assert await rows(migrated, "SELECT count(*) FROM tombstones") == [(1,)]
    assert await rows(migrated, "SELECT pattern FROM dead_letter_patterns") == [("new",)]


async def _now_ms(database: Database) -> int:
    ((now_ms,),) = await rows(database, "SELECT (extract(epoch FROM now()) * 1000)::bigint")
    return now_ms
