"""What machines in one zone with clocks that agree and instants that never tie do not show."""

import pytest

from tests.history.situations import checkpoint, execute, forget_everything, replicate_all, replicating, rows
from tests.history.situations import until_somebody_waits_for as until_waiting_for
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.dead_letters.dead_letter_list import DeadLetterFilter, DeadLetters
from tideq.persistence.read.filters import TaskFilter
from tideq.persistence.read.task_list import TaskList
from tideq.persistence.read.tasks import TaskReader
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.schema.partitions import id_at
from tideq.persistence.settings import DAY_MS
from tideq.queue_core.scripts.record import Record, parse_record

HOUR_MS = 3_600_000


async def _record(kit: Kit, task_id: str) -> Record:
    return parse_record(await kit.client.hget(kit.keys.key("records"), task_id))


async def test_rows_are_not_to_be_seen_before_their_checkpoint(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """Both are of one transaction: a replicator killed in between would write the rows a second time."""
    await kit.submit()
    async with replicating(kept, store.url, kit), migrated.session() as blocker, blocker.transaction():
        await blocker.execute("SELECT FROM checkpoints FOR UPDATE")
        await until_waiting_for(migrated, "checkpoints")

        assert await rows(migrated, "SELECT FROM task_events") == []


async def test_steps_come_in_the_order_of_their_epochs_and_versions_whatever_their_instants(migrated: Database) -> None:
    """Some of one instant, and an epoch that began on a server whose clock was behind.

    Ties alone show nothing: PostgreSQL reads a task's steps in the order of their key, and a sort leaves those alone.
    """
    step = "INSERT INTO task_events VALUES (%s, %s, %s, to_timestamp(%s), 'queued', 'submitted', 0, NULL, NULL)"
    task_id = id_at(1_900_000_000_000)
    for epoch, version, second in ((2, 5, 1), (2, 4, 1), (1, 3, 2), (1, 2, 2), (1, 1, 2)):
        await execute(migrated, step, task_id, epoch, version, second)

    async with migrated:
        found = await TaskReader(migrated).transitions(str(task_id))

    assert [each.version for each in found] == [1, 2, 3, 4, 5]


async def test_after_a_rebuild_time_goes_on_from_where_history_was(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    """The new store's clock may be behind that of the lost one: ranks and deadlines must not lie before its past."""
    await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await execute(migrated, "UPDATE checkpoints SET now_ms = now_ms + %s", HOUR_MS)
    least_ms = (await checkpoint(kit, migrated)).now_ms
    await forget_everything(kit)
    assert kept.guard

    await kept.guard.verify()

    assert (await _record(kit, await kit.submit())).number("created_ms") >= least_ms


async def test_a_page_goes_on_among_tasks_that_died_in_one_instant(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    await kit.worker()
    for _ in range(5):
        await kit.submit()
    died = [await kit.started() for _ in range(5)]
    await kit.clock.stop()
    for task in died:
        await kit.fail(task, verdict="discard")
    await replicate_all(kept, store.url, kit, migrated)
    assert await rows(migrated, "SELECT count(DISTINCT died_at) FROM dead_letter_tasks") == [(1,)]
    letters, found, cursor = DeadLetters(migrated, 30 * DAY_MS), list[str](), None

    while True:
        page = await letters.page(DeadLetterFilter(), limit=2, cursor=cursor)
        found += [each.task.task_id for each in page.dead_letters]
        if (cursor := page.next_cursor) is None:
            break

    assert sorted(found) == sorted(task.task_id for task in died)


@pytest.mark.usefixtures("elsewhere")
async def test_instants_are_the_same_in_every_zone(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    task_id = await kit.submit()
    await replicate_all(kept, store.url, kit, migrated)
    await kit.queue.cancel(task_id)
    record = await _record(kit, task_id)
    await replicate_all(kept, store.url, kit, migrated)
    created_ms, ended_ms = record.number("created_ms"), record.number("ended_ms")

    assert await rows(migrated, "SELECT current_setting('timezone')") == [("Asia/Kolkata",)]
    instants = "SELECT extract(epoch FROM created_at) * 1000, extract(epoch FROM ended_at) * 1000 FROM tasks"
    assert [tuple(map(int, row)) for row in await rows(migrated, instants)] == [(created_ms, ended_ms)]
    listing = TaskList(migrated)
    for wanted, count in (
        (TaskFilter(created_from_ms=created_ms, created_below_ms=created_ms + 1), 1),
        (TaskFilter(created_from_ms=created_ms + 1), 0),
        (TaskFilter(created_below_ms=created_ms), 0),
    ):
        assert len((await listing.page(wanted)).tasks) == count
