"""The store's format: raised by hand once every process is new, kept by history, refused by what does not know it."""

from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from tests.api.running import environ, tideq
from tests.history.situations import execute, forget_everything, replicate_all, rows, until_open
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tests.telemetry.listening import Reader, follow, follower
from tideq.persistence.database import Database
from tideq.persistence.history import History
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.tasks import lock_tasks
from tideq.persistence.recovery.open_store import OpenStore, open_store
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.errors import StoreFormatUnknown, TaskUnreadable
from tideq.queue_core.outbox.stream import BEGINNING, OutboxStream
from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.settings import QueueSettings, SettingsError

UNKNOWN_ID = b"01a1f00a-29bc-7772-b799-005281ba876e"
"""Of a task that neither the store nor history has."""


@pytest.fixture
async def kept(
    store: StoreUnderTest, migrated: Database, queue_settings: QueueSettings, history_settings: HistorySettings
) -> AsyncIterator[OpenStore]:
    async with open_store(store.url, queue_settings, history_settings) as kept:
        yield kept


async def format_of(kit: Kit) -> bytes | None:
    return await kit.client.hget(kit.keys.key("meta"), "format")


async def test_a_store_and_its_records_say_their_format(kit: Kit) -> None:
    task_id = await kit.submit()

    assert await format_of(kit) == b"3"
    assert (await kit.client.hget(kit.keys.key("records"), task_id)).startswith(b"3\0queued\0")


async def test_migrate_finish_writes_the_newest_format_and_a_rebuild_keeps_it(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    early = await kit.submit()
    settings = environ(store.url, kit.settings.queue_name, DATABASE_URL=history_settings.database_url)

    said = tideq(settings, "migrate", "finish")
    late = await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await forget_everything(kit)
    await until_open(kit)

    assert said.returncode == 0, said.stderr
    assert await format_of(kit) == b"3"
    assert [task and task.state for task in await kit.queue.read_many([early, late])] == [
        "queued",
        "queued",
    ]
    records = await rows(migrated, "SELECT record FROM tasks ORDER BY task_id")
    assert [record.startswith("3\x1fqueued\x1f") for (record,) in records] == [True, True]


async def test_a_store_or_history_of_a_later_format_is_refused_at_start_with_one_sentence(
    kit: Kit,
    kept: OpenStore,
    migrated: Database,
    store: StoreUnderTest,
    queue_settings: QueueSettings,
    history_settings: HistorySettings,
) -> None:
    async def refusal(history: HistorySettings) -> str:
        with pytest.raises(SettingsError) as refused:
            async with open_store(store.url, queue_settings, history):
                pass
        return str(refused.value)

    await kit.client.hset(kit.keys.key("meta"), "format", 99)
    assert "format 99" in await refusal(HistorySettings())
    assert "format 99" in await refusal(history_settings)
    said = tideq(environ(store.url, queue_settings.queue_name), "serve", "--port", "0")
    await kit.client.hset(kit.keys.key("meta"), "format", 3)
    await execute(migrated, "INSERT INTO side_data (partition, name, content) VALUES (0, 'format', '\\x63')")

    assert "format 99" in await refusal(history_settings)
    assert (said.returncode, said.stderr.count("\n")) == (2, 1), said.stderr


async def test_a_store_of_an_earlier_format_is_refused_with_one_sentence(
    kit: Kit, kept: OpenStore, store: StoreUnderTest, queue_settings: QueueSettings
) -> None:
    await kit.client.hdel(kit.keys.key("meta"), "format")

    with pytest.raises(StoreFormatUnknown, match="format 1"):
        await kit.submit()
    said = tideq(environ(store.url, queue_settings.queue_name), "serve", "--port", "0")
    await kit.client.hset(kit.keys.key("meta"), "format", 3)

    assert (said.returncode, said.stderr.count("\n")) == (2, 1), said.stderr
    assert "begin with an empty store" in said.stderr


async def test_a_database_of_an_earlier_version_is_refused_with_one_sentence(
    migrated: Database, store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> None:
    await execute(migrated, "UPDATE migrations SET digest = 'of another version'")

    settings = environ(store.url, queue_settings.queue_name, DATABASE_URL=history_settings.database_url)
    for status, *words in ((2, "serve", "--port", "0"), (1, "migrate")):
        said = tideq(settings, *words)

        assert (said.returncode, said.stderr.count("\n")) == (status, 1), said.stderr
        assert "begin with an empty database or data folder" in said.stderr


async def test_an_event_that_cannot_be_read_is_parked_and_skipped_and_the_rest_goes_on(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    first = await kit.submit()
    outbox, key = OutboxStream(kit.client, kit.keys), kit.keys.key("outbox")
    now_ms = await kit.client.hget(kit.keys.key("meta"), "now_ms")
    bad = "01a1f00a-29bc-7772-b799-005281ba876e"
    await kit.client.xadd(key, {"now_ms": now_ms, "epoch": "1", bad: b"99\0of a later version"})
    await kit.client.xadd(key, {"moment": now_ms, bad: b"an entry of a later version"})
    last = await kit.submit()

    page = await outbox.page_after(BEGINNING)
    await replicate_all(kept, store.url, kit, migrated)

    assert page is not None
    assert [event.task_id for event in page.events] == [first, last]
    assert outbox.skipped_count == 2
    assert await rows(migrated, "SELECT task_id::text FROM tasks ORDER BY task_id") == [(first,), (last,)]
    assert await rows(migrated, "SELECT task_id::text, count(*) FROM parked_events GROUP BY 1") == [(bad, 2)]


STRANGE_EVENTS: dict[str, tuple[bytes, bytes]] = {
    "a short one with a version": (UNKNOWN_ID, b"3\0completed\x003\0"),
    "one that ends in its version": (UNKNOWN_ID, b"3\0completed\x003"),
    "of no task": (b"x" * 36, b"3\0completed\x003\0"),
    "of no task, in no format": (b"x" * 36, b"99\0completed"),
    "of no text": (b"\xff\0" * 18, b"3\0completed\x003\0"),
    "of a version beyond all numbers": (UNKNOWN_ID, b"3\0completed\x00%d\0" % 2**70 + b"0\0" * 22),
}


async def test_what_a_later_version_adds_to_an_entry_is_no_event_that_was_skipped(kit: Kit) -> None:
    task_id = await kit.submit()
    ((_, fields),) = await kit.client.xrange(kit.keys.key("outbox"))
    outbox = OutboxStream(kit.client, kit.keys)
    await kit.client.xadd(
        kit.keys.key("outbox"), {**fields, "format": "3", "tenant": "t-7", b"\xff": b"", b"y" * 36: b""}
    )

    page = await outbox.page_after(BEGINNING)

    assert page is not None
    assert [event.task_id for event in page.events] == [task_id, task_id]
    assert outbox.skipped_count == 1


@pytest.mark.parametrize("strange", STRANGE_EVENTS)
@pytest.mark.parametrize("epoch", ["1", "0", str(2**70)])
async def test_whatever_an_event_is_the_replicator_parks_it_and_goes_on(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, strange: str, epoch: str
) -> None:
    first = await kit.submit()
    name, packed = STRANGE_EVENTS[strange]
    now_ms = await kit.client.hget(kit.keys.key("meta"), "now_ms")
    await kit.client.xadd(kit.keys.key("outbox"), {"now_ms": now_ms, "epoch": epoch, name: packed})
    last = await kit.submit()

    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, "SELECT task_id::text FROM tasks ORDER BY task_id") == [(first,), (last,)]
    assert await rows(migrated, "SELECT count(*) FROM parked_events") == [(1,)]


@pytest.mark.parametrize("strange", [*STRANGE_EVENTS, "a whole one of no text"])
async def test_whatever_an_event_is_the_journal_skips_it_and_tells_the_rest(kit: Kit, strange: str) -> None:
    ear = Reader()
    made = await follower(kit, ear)
    first = await kit.submit()
    whole = await kit.client.hget(kit.keys.key("records"), first)
    name, packed = STRANGE_EVENTS.get(strange, (b"\xff" * 36, whole))
    now_ms = await kit.client.hget(kit.keys.key("meta"), "now_ms")
    await kit.client.xadd(kit.keys.key("outbox"), {"now_ms": now_ms, "epoch": "1", name: packed})
    last = await kit.submit()

    await follow(made)

    assert [each.task_id for each in ear.heard if each.task_id != name.decode(errors="replace")] == [first, last]
    assert made.skipped_count + made.published_count == 3


async def test_an_old_primarys_event_of_a_purged_task_is_parked_where_it_cannot_be_read(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    purged = await kit.submit()
    await kit.queue.cancel(purged)
    await kit.queue.purge(purged)
    await replicate_all(kept, store.url, kit, migrated)
    now_ms = await kit.client.hget(kit.keys.key("meta"), "now_ms")
    await kit.client.xadd(kit.keys.key("outbox"), {"now_ms": now_ms, "epoch": "0", purged: b"3\0completed\x009\0"})
    last = await kit.submit()

    await replicate_all(kept, store.url, kit, migrated)

    assert await rows(migrated, "SELECT task_id::text FROM tasks") == [(last,)]
    assert await rows(migrated, "SELECT task_id FROM parked_events") == [(purged,)]


async def test_a_rebuild_leaves_out_and_names_what_it_cannot_read(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    bad, good = await kit.submit(), await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await execute(migrated, "UPDATE tasks SET record = '99' || chr(31) || record WHERE task_id = %s", bad)

    with capture_logs() as logs:
        await forget_everything(kit)
        await until_open(kit)

    assert [task and task.task_id for task in await kit.queue.read_many([bad, good])] == [None, good]
    named = [each["task_id"] for each in logs if each["event"].startswith("task not restored")]
    assert named == [bad]


async def test_a_page_of_history_leaves_out_a_row_that_cannot_be_read(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    bad, good = await kit.submit(), await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await execute(migrated, "UPDATE tasks SET record = 'garbage' WHERE task_id = %s", bad)
    archive = History(migrated, kept.engine, kept.client, kit.settings, history_settings)

    page = await archive.listing.page(TaskFilter(), 10)

    assert [task.task_id for task in page.tasks] == [good]
    with pytest.raises(TaskUnreadable):
        await archive.tasks.find(bad)
    assert list(await archive.tasks.find_many([bad, good])) == [good]


async def test_an_instant_that_is_none_costs_the_timings_of_others_nothing(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    await kit.worker()
    for _ in range(2):
        await kit.submit()
    tasks = [await kit.started() for _ in range(2)]
    for task in tasks:
        await kit.complete(task)
    await replicate_all(kept, store.url, kit, migrated)
    bad = tasks[0].task_id
    ((record,),) = await rows(migrated, "SELECT record FROM tasks WHERE task_id = %s", bad)
    fields = record.split("\x1f")
    fields[1 + NAMES.index("started_ms")] = "soon"
    await execute(migrated, "UPDATE tasks SET record = %s WHERE task_id = %s", "\x1f".join(fields), bad)

    timings = await History(migrated, kept.engine, kept.client, kit.settings, history_settings).timings.since(0)

    assert len(timings) == 1


async def test_a_row_whose_definition_cannot_be_read_keeps_no_other_from_being_revived(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    bad, good = await kit.submit(), await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await execute(migrated, "UPDATE tasks SET attributes = 'not JSON' WHERE task_id = %s", bad)

    async with migrated.session() as connection, connection.transaction():
        assert list(await lock_tasks(connection, [bad, good])) == [good]
