"""Nobody works on a store before it was compared with history: what is found, and what is done about it."""

import asyncio
import contextlib
from typing import Any, LiteralString

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.contract.situations import submit_count
from tests.history.situations import (
    checkpoint,
    execute,
    forget_everything,
    replicate_all,
    rows,
    until_open,
)
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.checkpoints import Checkpoint
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.recovery.store_guard import StoreCheck, compare
from tideq.persistence.replication.parking import Parking
from tideq.persistence.settings import HistorySettings
from tideq.persistence.tombstones import Tombstone, add_tombstones
from tideq.queue_core.errors import HistoryUnavailable, StoreReplaced
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.outbox.reader import FIRST_ID
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings, SettingsError
from tideq.queue_core.store.access_keys import AccessKeys
from tideq.queue_core.store.restore import StoreRestore, StoreStatus
from tideq.queue_core.store.side_data import NAMES

Opened = contextlib.AbstractAsyncContextManager[Kit]
CLOSED = "closed:0123456789abcdef"


@pytest.mark.parametrize(
    ("epoch", "last_entry_id", "known", "verdict"),
    [
        ("", FIRST_ID, None, StoreCheck.FRESH_INSTALL),
        (CLOSED, "9-0", None, StoreCheck.FRESH_INSTALL),
        ("1", FIRST_ID, None, StoreCheck.HISTORY_BEHIND),
        ("7", "9-0", None, StoreCheck.HISTORY_BEHIND),
        ("3", "9-0", (2, "5-0"), StoreCheck.HISTORY_BEHIND),
        ("", FIRST_ID, (1, FIRST_ID), StoreCheck.STORE_EMPTY),
        ("", FIRST_ID, (1, "5-0"), StoreCheck.STORE_EMPTY),
        (CLOSED, "5-0", (1, "5-0"), StoreCheck.STORE_EMPTY),
        ("1", FIRST_ID, (1, FIRST_ID), StoreCheck.IN_SYNC),
        ("1", "5-0", (1, "5-0"), StoreCheck.IN_SYNC),
        ("1", "5-1", (1, "5-0"), StoreCheck.IN_SYNC),
        ("1", "10-0", (1, "9-0"), StoreCheck.IN_SYNC),
        ("1", "5-0", (1, "5-1"), StoreCheck.STORE_BEHIND),
        ("1", "9-0", (1, "10-0"), StoreCheck.STORE_BEHIND),
        ("1", "9-0", (2, "5-0"), StoreCheck.STORE_BEHIND),
        ("2", FIRST_ID, (2, "5-0"), StoreCheck.STORE_BEHIND),
    ],
)
def test_a_store_is_judged_by_its_epoch_and_its_last_entry(
    epoch: str, last_entry_id: str, known: tuple[int, str] | None, verdict: StoreCheck
) -> None:
    facts = StoreStatus(epoch, "run/replication", "run/replication", last_entry_id)

    assert compare(facts, Checkpoint(*known, 0, 0) if known else None) is verdict


@pytest.mark.parametrize(
    ("was_replica", "known_identity", "verdict"),
    [
        (True, "old/old", StoreCheck.FAILED_OVER),
        (True, "run/replication", StoreCheck.IN_SYNC),
        (False, "old/old", StoreCheck.IN_SYNC),
    ],
)
def test_a_server_that_took_over_is_told_from_one_that_restarted_and_one_that_is_known(
    *, was_replica: bool, known_identity: str, verdict: StoreCheck
) -> None:
    facts = StoreStatus("1", "run/replication", known_identity, "5-0", was_replica)

    assert compare(facts, Checkpoint(1, "5-0", 0, 0)) is verdict


async def test_a_new_install_opens_in_the_first_epoch(kit: Kit, migrated: Database) -> None:
    await kit.submit()

    assert kit.engine.scripts.epoch == "1"
    assert await checkpoint(kit, migrated) == Checkpoint(1, FIRST_ID, 0, 0)


async def test_keys_made_before_the_first_start_stand(
    client: Any,
    store: StoreUnderTest,
    migrated: Database,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
) -> None:
    keys = AccessKeys(client, Keys(queue_settings.queue_name, queue_settings.partition))
    await keys.create("boss", "admin", 0)

    async with open_store(store.url, queue_settings, history_settings):
        assert [key.name for key in await keys.all()] == ["boss"]


async def test_a_replicator_that_goes_on_meanwhile_does_not_make_a_store_look_behind(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is looked at, then grows and is replicated: history must not have been read after that."""
    look, custodian = StoreRestore.status, kept.guard
    assert custodian is not None

    async def look_too_early(restoration: StoreRestore) -> StoreStatus:
        facts = await look(restoration)
        await kit.submit()
        await replicate_all(kept, store.url, kit, migrated)
        return facts

    monkeypatch.setattr(StoreRestore, "status", look_too_early)

    assert await custodian.verify() is StoreCheck.IN_SYNC


async def test_of_two_processes_that_find_an_empty_store_one_rebuilds_it(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
) -> None:
    ids = [task_id for _ in range(4) for task_id in await submit_count(kit, 500)]
    await replicate_all(kept, store.url, kit, migrated)
    rebuilt: set[str] = set()
    await forget_everything(kit)

    async def start(name: str) -> str:
        async with open_store(
            store.url, queue_settings, history_settings, lambda _done, _total: rebuilt.add(name)
        ) as another:
            return another.engine.scripts.epoch

    epochs = await asyncio.gather(start("one"), start("two"), start("three"))
    await until_open(kit)

    assert set(epochs) == {"2"}
    assert len(rebuilt) == 1
    assert all(await kit.queue.read_many(ids[:1_000]))


async def test_who_was_overtaken_while_it_rebuilt_can_no_longer_empty_the_store(
    kit: Kit, queue_settings: QueueSettings
) -> None:
    """It slept between closing the store and emptying it; somebody else has rebuilt and opened it meanwhile."""
    (task_id,) = await submit_count(kit, 1)
    sleeper, other = StoreRestore(kit.client, queue_settings), StoreRestore(kit.client, queue_settings)
    facts = await other.status()
    sealed = await sleeper.close(facts)
    await other.enter(await other.close(sealed), "1")

    with pytest.raises(StoreReplaced):
        await sleeper.wipe()

    assert (await kit.read(task_id)).task_id == task_id


DAMAGED_ROWS: dict[str, LiteralString] = {
    "attributes": "UPDATE tasks SET attributes = 'not JSON' WHERE task_id = %s",
    "record": "UPDATE tasks SET record = '99' || chr(31) || record WHERE task_id = %s",
}


@pytest.mark.parametrize("column", DAMAGED_ROWS)
async def test_a_row_nobody_can_read_is_parked_while_the_store_opens_and_comes_back_once_it_is_mended(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, column: str
) -> None:
    bad, good = await submit_count(kit, 2)
    await replicate_all(kept, store.url, kit, migrated)
    before = await rows(migrated, "SELECT attributes, record FROM tasks WHERE task_id = %s", bad)
    parking = Parking(migrated, kit.engine.partition, OutboxConsumer(kit.client, kit.keys), kit.settings.partition)
    await execute(migrated, DAMAGED_ROWS[column], bad)
    for _ in range(2):
        await forget_everything(kit)
        await until_open(kit)

    assert [task and task.task_id for task in await kit.queue.read_many([bad, good])] == [None, good]
    assert [(each.task_id, each.event_count) for each in await parking.tasks()] == [(bad, 1)]

    await execute(migrated, "UPDATE tasks SET attributes = %s, record = %s WHERE task_id = %s", *before[0], bad)
    custodian = kept.guard
    assert custodian is not None
    await custodian.reconcile()
    await until_open(kit)
    assert (await kit.read(bad)).task_id == bad
    if column == "attributes":
        assert await parking.retry(bad) is True
    else:
        assert await parking.discard(bad) == 1
    assert await parking.tasks() == []
    assert await rows(migrated, "SELECT attributes, record FROM tasks WHERE task_id = %s", bad) == before


@pytest.mark.parametrize("is_purged", [False, True], ids=["live", "purged"])
async def test_a_record_with_a_shifted_field_keeps_no_store_from_being_reconciled(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, is_purged: bool
) -> None:
    bad, good = await submit_count(kit, 2)
    records, custodian = kit.keys.key("records"), kept.guard
    whole = await kit.client.hget(records, bad)
    if is_purged:
        await kit.queue.cancel(bad)
        await kit.queue.purge(bad)
    await replicate_all(kept, store.url, kit, migrated)
    shifted = whole.replace(b"queued\x001\0", b"queued\0new\x001\0")
    await kit.client.hset(records, mapping={bad: shifted, "of no task": shifted})
    await kit.client.hdel(records, good)
    assert custodian is not None

    await custodian.reconcile()
    await until_open(kit)

    assert [task and task.task_id for task in await kit.queue.read_many([bad, good])] == [None, good]
    assert await kit.client.hget(records, bad) == shifted


async def test_a_parked_task_whose_row_cannot_be_read_keeps_no_store_closed(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    bad, good = await submit_count(kit, 2)
    await replicate_all(kept, store.url, kit, migrated)
    await execute(
        migrated,
        "INSERT INTO parked_events (partition, epoch, entry_id, task_id, version, record, problem) "
        "SELECT 0, 1, '0-0', task_id::text, 2, 'short', 'none' FROM tasks WHERE task_id = %s",
        bad,
    )
    await execute(migrated, DAMAGED_ROWS["attributes"], bad)
    await forget_everything(kit)

    await until_open(kit)

    assert [task and task.task_id for task in await kit.queue.read_many([bad, good])] == [None, good]
    parking = Parking(migrated, kit.engine.partition, OutboxConsumer(kit.client, kit.keys), kit.settings.partition)
    assert await parking.discard(bad) == 1


@pytest.mark.parametrize("held", ["the lock", "a table"])
async def test_settling_a_store_ends_when_its_time_is_up_and_the_next_try_succeeds(
    kit: Kit, kept: OpenStore, migrated: Database, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    """Of an unknown run of its server: nobody is let in on an older word."""
    monkeypatch.setattr("tideq.persistence.recovery.store_guard.COMPARE_SECONDS", 0.3)
    custodian = kept.guard
    assert custodian is not None
    await kit.client.hset(kit.keys.key("meta"), "identity", "another run")

    async with migrated.session() as connection, connection.transaction():
        if held == "the lock":
            name = f"{migrated.schema}:{kit.settings.partition}"
            await connection.execute("SELECT pg_advisory_xact_lock(7305004, hashtext(%s))", (name,))
        else:
            await connection.execute("LOCK TABLE checkpoints IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(HistoryUnavailable):
            await custodian.verify()

    monkeypatch.undo()
    assert await custodian.verify() is StoreCheck.IN_SYNC


async def test_a_purged_task_without_a_readable_definition_leaves_the_store_and_keeps_it_from_nobody(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """As where a fail-over lost the purge: the store has the task, and history a tombstone."""
    bad, good = await submit_count(kit, 2)
    created_ms, custodian = (await kit.read(bad)).created_at_ms, kept.guard
    await replicate_all(kept, store.url, kit, migrated)
    async with migrated.session() as connection, connection.transaction():
        await connection.execute("DELETE FROM tasks WHERE task_id = %s", (bad,))
        await add_tombstones(connection, [Tombstone(bad, 1, 2, created_ms)])
    await kit.client.hset(kit.keys.key("definitions"), bad, b"\xc1 damaged")
    assert custodian is not None

    await custodian.reconcile()
    await until_open(kit)

    assert [task and task.task_id for task in await kit.queue.read_many([bad, good])] == [None, good]
    assert await kit.client.hexists(kit.keys.key("records"), bad) is False


@pytest.mark.parametrize("name", NAMES)
async def test_a_store_opens_without_what_history_kept_of_it_besides_tasks_where_that_cannot_be_read(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
    name: str,
) -> None:
    """The process that puts it back, and the next that starts."""
    task_id = await _task_and_side_data(kit)
    await replicate_all(kept, store.url, kit, migrated)
    await execute(migrated, "UPDATE side_data SET content = '\\xc1' WHERE name = %s", name)

    with capture_logs() as logs:
        await forget_everything(kit)
        await until_open(kit)
        async with open_store(store.url, queue_settings, history_settings):
            pass

    assert (await kit.read(task_id)).task_id == task_id
    assert await _side_data_in(kit) == [each for each in ("access_keys", "controls", "fleet") if each != name]
    assert {each["of"] for each in logs if each["event"].startswith("not restored")} == {name}


async def test_of_the_fleet_and_the_keys_only_those_stay_away_that_cannot_be_read(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await _task_and_side_data(kit)
    await replicate_all(kept, store.url, kit, migrated)
    for name in ("fleet", "access_keys", "controls"):
        ((content,),) = await rows(migrated, "SELECT content FROM side_data WHERE name = %s", name)
        more = msgspec.msgpack.encode({**msgspec.msgpack.decode(content), "odd": 7, "empty": {}})
        await execute(migrated, "UPDATE side_data SET content = %s WHERE name = %s", more, name)

    await forget_everything(kit)
    await until_open(kit)

    assert await _side_data_in(kit) == ["access_keys", "controls", "fleet"]
    assert [member.worker.worker_id for member in (await kit.fleet.members()).members] == ["w1"]
    assert b"odd" not in await kit.client.hkeys(kit.keys.key("access_keys"))


async def test_history_copies_what_the_store_holds_besides_tasks_but_for_names_that_are_no_text(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await _task_and_side_data(kit)
    await kit.client.hset(kit.keys.key("controls"), b"\xff", b"any")
    await kit.client.hset(kit.keys.prefix("worker") + "w1", b"\xff", b"any")

    await replicate_all(kept, store.url, kit, migrated)
    await forget_everything(kit)
    await until_open(kit)

    assert await _side_data_in(kit) == ["access_keys", "controls", "fleet"]


async def test_a_store_whose_format_is_no_number_is_refused_at_start_with_one_sentence(
    kit: Kit, store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    await kit.client.hset(kit.keys.key("meta"), "format", b"\xff")

    with pytest.raises(SettingsError, match="format \N{REPLACEMENT CHARACTER},"):
        async with open_store(store.url, queue_settings, history_settings):
            pass

    await kit.client.hset(kit.keys.key("meta"), "format", 3)


async def _task_and_side_data(kit: Kit) -> str:
    (task_id,) = await submit_count(kit, 1)
    await AccessKeys(kit.client, kit.keys).create("ann", "admin", 1)
    await kit.controls.pause("another")
    await kit.worker()
    return task_id


async def _side_data_in(kit: Kit) -> list[str]:
    present = {
        "access_keys": await AccessKeys(kit.client, kit.keys).all(),
        "controls": (await kit.insight.stats()).controls,
        "fleet": (await kit.fleet.members()).members,
    }
    return [name for name, each in present.items() if each]
