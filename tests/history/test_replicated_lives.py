"""Lives that replication must get right: purged, replayed, cleaned away, and stores that begin anew."""

from tests.contract.situations import submit_count
from tests.history.situations import (
    checkpoint,
    execute,
    forget_everything,
    replicate_all,
    replicating,
    rows,
    until,
    until_replicated,
)
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.definitions import packed_of_columns as packed_definition
from tideq.persistence.definitions import packed_record
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.recovery.store_guard import StoreCheck
from tideq.queue_core.partition import KeptTask
from tideq.queue_core.store.restore import StoreRestore


async def test_a_task_purged_before_it_was_replicated_leaves_nothing(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    gone, kept_id = await submit_count(kit, 2)
    await kit.queue.cancel(gone)
    await kit.queue.purge(gone)

    await replicate_all(kept, store.url, kit, migrated)

    for table in ("tasks", "task_events"):
        assert await rows(migrated, f"SELECT DISTINCT task_id::text FROM {table}") == [(kept_id,)]  # noqa: S608
    assert await rows(migrated, "SELECT FROM parked_events") == []


async def test_a_task_replayed_from_history_goes_on_in_its_row(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    task_id, kept_task = await _forgotten_dead_letter(kit, kept, migrated, store)

    await kit.queue.replay(task_id, kept=kept_task)
    await kit.complete(await kit.started(await kit.worker("w2")), "w2")
    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, "SELECT state, version, error FROM tasks") == [("completed", 8, ERROR)]
    assert [row[0] for row in await rows(migrated, "SELECT version FROM task_events ORDER BY 1")] == [*range(1, 9)]
    assert await rows(migrated, "SELECT FROM dead_letter_tasks") == []


async def test_a_task_whose_row_was_cleaned_away_while_it_was_replayed_is_written_anew(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    task_id, kept_task = await _forgotten_dead_letter(kit, kept, migrated, store)

    await kit.queue.replay(task_id, kept=kept_task)
    for table in ("tasks", "task_events", "dead_letter_tasks"):
        await execute(migrated, f"DELETE FROM {table}")  # noqa: S608 - one of these three
    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, "SELECT task_id::text, state, version, parameters FROM tasks") == [
        (task_id, "queued", 5, '{"a":1}')
    ]
    assert await rows(migrated, "SELECT version FROM task_events") == [(5,)]


ERROR = '{"message":"no"}'


async def _forgotten_dead_letter(
    kit: Kit, kept: OpenStore, database: Database, store: StoreUnderTest
) -> tuple[str, KeptTask]:
    """Its id, and all of it that history keeps for a replay."""
    task_id = await kit.submit(parameters=b'{"a":1}')
    await kit.worker()
    await kit.fail(await kit.started(), verdict="discard")
    await replicate_all(kept, store.url, kit, database)
    await until(lambda: kit.client.zcard(kit.keys.key("expiring")))
    await kit.clock.advance(kit.settings.retention.result_ttl_ms)
    await kit.queue.sweep()
    assert await kit.queue.read_many([task_id]) == [None]
    ((record, attributes),) = await rows(database, "SELECT record, attributes FROM tasks")
    return task_id, KeptTask(packed_record(record), packed_definition("resize", b'{"a":1}', attributes))


async def test_stream_ids_that_begin_low_again_are_not_taken_for_old_ones(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """As after a loss of the store on a server whose clock is ten minutes behind."""
    (first,) = await submit_count(kit, 1)
    seconds, _ = await kit.client.time()
    await kit.client.execute_command("XSETID", kit.keys.key("outbox"), f"{(seconds + 600) * 1_000}-0")
    (second,) = await submit_count(kit, 1)
    async with replicating(kept, store.url, kit):
        await until_replicated(kit, migrated)
        high = (await checkpoint(kit, migrated)).order

        await forget_everything(kit)
        await until(lambda: _is_at(kit, "2"))
        (third,) = await submit_count(kit, 1)
        await until_replicated(kit, migrated)

    assert (await checkpoint(kit, migrated)).order[1:] < high[1:]
    assert await rows(migrated, "SELECT task_id::text, epoch FROM task_events ORDER BY 1") == [
        (first, 1),
        (second, 1),
        (third, 2),
    ]


async def test_a_history_that_is_younger_than_the_store_learns_all_its_stream_still_has(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """Also the entries of earlier epochs, which a store that was reconciled still holds."""
    assert kept.guard is not None
    (first,) = await submit_count(kit, 1)
    restoration = StoreRestore(kit.client, kit.settings)
    await restoration.enter(await restoration.status(), "2")
    await execute(migrated, "DELETE FROM checkpoints")

    assert await kept.guard.verify() is StoreCheck.HISTORY_BEHIND
    (second,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, "SELECT task_id::text, epoch FROM task_events ORDER BY 1") == [(first, 1), (second, 2)]


async def _is_at(kit: Kit, epoch: str) -> bool:
    return kit.engine.scripts.epoch == epoch


async def test_a_stream_read_from_its_beginning_again_adds_nothing_and_parks_nothing(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """As after PostgreSQL was set back to a backup: at least once from the stream, exactly once into history."""
    await kit.worker()
    await submit_count(kit, 3)
    await kit.complete(await kit.started(), result=b'"kept"')
    await kit.fail(await kit.started(), verdict="discard")
    await replicate_all(kept, store.url, kit, migrated)
    everything = "SELECT * FROM task_events ORDER BY task_id, version", "SELECT * FROM tasks ORDER BY task_id"
    before = [await rows(migrated, each) for each in everything]

    await execute(migrated, "UPDATE checkpoints SET entry_id = '0-0'")
    await replicate_all(kept, store.url, kit, migrated)

    assert [await rows(migrated, each) for each in everything] == before
    assert await rows(migrated, "SELECT FROM parked_events") == []
    assert await rows(migrated, "SELECT death_count FROM dead_letter_patterns") == [(1,)]
