"""Parked events do not stay for ever: they are written once their cause is gone, or given up. No rebuild drops them."""

import pytest

from tests.api.running import environ
from tests.contract.situations import submit_count
from tests.history.servers import finished
from tests.history.situations import (
    execute,
    forget_everything,
    replicate_all,
    replicating,
    rows,
    until,
    until_open,
    until_replicated,
)
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.replication.parking import Parking
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.errors import TaskNotFound
from tideq.queue_core.outbox.consumer import OutboxConsumer
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import NewTask

REFUSE = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = 'data_exception'; END $$",
    "CREATE TRIGGER refusing BEFORE INSERT ON tasks FOR EACH ROW WHEN (NEW.task_type = 'awkward') "
    "EXECUTE FUNCTION refuse()",
)
PARKED = "SELECT task_id, version FROM parked_events ORDER BY parked_id"
EVENTS = "SELECT version, state FROM task_events WHERE task_id = %s::uuid ORDER BY version"
STANDING = "SELECT state, version, result FROM tasks WHERE task_id = %s::uuid"
UNWRITABLE = b'"\0"'


@pytest.fixture
async def awkward(migrated: Database) -> Database:
    """A history that refuses tasks of one type, until somebody mends it."""
    for step in REFUSE:
        await execute(migrated, step)
    return migrated


@pytest.fixture
def parking(kept: OpenStore, kit: Kit, migrated: Database) -> Parking:
    return Parking(migrated, kit.engine.partition, OutboxConsumer(kit.client, kit.keys), kit.settings.partition)


async def test_what_is_tried_again_goes_in_and_the_same_replicator_goes_on_with_the_task(
    kit: Kit, kept: OpenStore, awkward: Database, store: StoreUnderTest, parking: Parking
) -> None:
    await kit.worker()
    async with replicating(kept, store.url, kit):
        task_id = await kit.submit(task_type="awkward")
        task = await kit.started()
        await until(lambda: _has_parked(awkward, [1, 2, 3]))
        await execute(awkward, "DROP TRIGGER refusing ON tasks")
        outcome = await parking.retry(task_id)
        await kit.complete(task, result=b'"done"')
        await until_replicated(kit, awkward)

    assert outcome is True
    assert await rows(awkward, PARKED) == []
    assert await rows(awkward, EVENTS, task_id) == [
        (1, "queued"), (2, "assigned"), (3, "executing"), (4, "completed"),
    ]  # fmt: skip
    assert await rows(awkward, STANDING, task_id) == [("completed", 4, '"done"')]
    assert await _is_when_it_happened(awkward, task_id)


async def _has_parked(database: Database, versions: list[int]) -> bool:
    return [version for _, version in await rows(database, PARKED)] == versions


async def _is_when_it_happened(database: Database, task_id: str) -> bool:
    """The first event is as old as its task, to the millisecond."""
    query = "SELECT min(at) = min(created_at) FROM task_events JOIN tasks USING (task_id) WHERE task_id = %s::uuid"
    return (await rows(database, query, task_id)) == [(True,)]


async def test_what_fails_again_stays_parked_in_its_order(
    kit: Kit, kept: OpenStore, awkward: Database, store: StoreUnderTest, parking: Parking
) -> None:
    task_id = await kit.submit(task_type="awkward")
    await kit.queue.cancel(task_id)
    await replicate_all(kept, store.url, kit, awkward)

    assert await parking.retry(task_id) is False

    assert await rows(awkward, PARKED) == [(task_id, 1), (task_id, 2)]
    (parked,) = await parking.tasks()
    assert (parked.event_count, parked.first_version, parked.last_version) == (2, 1, 2)
    assert "not today" in parked.problem
    assert await rows(awkward, "SELECT FROM tasks") == []


async def test_the_store_forgets_a_finished_task_once_its_events_are_written(
    kit: Kit, kept: OpenStore, awkward: Database, store: StoreUnderTest, parking: Parking
) -> None:
    task_id = await kit.submit(task_type="awkward")
    await kit.queue.cancel(task_id)
    await replicate_all(kept, store.url, kit, awkward)
    await execute(awkward, "DROP TRIGGER refusing ON tasks")

    await kit.clock.advance(kit.settings.retention.result_ttl_ms)
    await kit.queue.sweep()
    assert await kit.read(task_id)
    await parking.retry(task_id)
    await kit.clock.advance(kit.settings.retention.result_ttl_ms)
    await kit.queue.sweep()

    with pytest.raises(TaskNotFound):
        await kit.read(task_id)


async def test_what_is_given_up_leaves_the_task_as_it_was_last_heard_of(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, parking: Parking
) -> None:
    task_id = await _completed_with_an_unwritable_result(kit)
    await replicate_all(kept, store.url, kit, migrated)
    before = await rows(migrated, STANDING, task_id)

    assert await parking.discard(task_id) == 1

    assert before == [("executing", 3, None)]
    assert await rows(migrated, STANDING, task_id) == [("completed", 4, None)]
    assert await rows(migrated, PARKED) == []
    assert (await parking.retry(task_id), await parking.discard(task_id)) == (None, 0)


async def _completed_with_an_unwritable_result(kit: Kit) -> str:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    await kit.complete(task, result=UNWRITABLE)
    return task.task_id


async def test_a_task_whose_result_is_parked_is_not_worked_for_again_after_a_rebuild(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    task_id = await _completed_with_an_unwritable_result(kit)
    (other,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)

    await forget_everything(kit)
    await until_open(kit)

    assert (await kit.insight.snapshot()).queue.keys() == {other}
    assert [task.task_id for task in (await kit.queue.claim("w1", 10)).tasks] == [other]
    assert await rows(migrated, PARKED) == [(task_id, 4)]


async def test_a_task_that_history_has_nothing_but_parked_events_of_is_rebuilt_from_those(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    (bad,) = await kit.queue.submit_many([NewTask(task_type="resize", parameters=b'{"a":"\0"}')])
    await kit.worker()
    await kit.started()
    await replicate_all(kept, store.url, kit, migrated)

    await forget_everything(kit)
    await until_open(kit)

    task = await kit.read(bad.task_id)
    assert (task.state.value, task.version, task.definition.parameters) == ("executing", 3, b'{"a":"\0"}')


@pytest.fixture
def command_line(
    store: StoreUnderTest, queue_settings: QueueSettings, history_settings: HistorySettings
) -> dict[str, str]:
    return environ(store.url, queue_settings.queue_name, DATABASE_URL=history_settings.database_url)


async def test_the_command_lists_tries_again_and_gives_up(
    kit: Kit, kept: OpenStore, awkward: Database, store: StoreUnderTest, command_line: dict[str, str]
) -> None:
    first, second = [await kit.submit(task_type="awkward") for _ in range(2)]
    await replicate_all(kept, store.url, kit, awkward)

    listed = finished(command_line, "parked", "list")
    in_vain = finished(command_line, "parked", "retry", "--all")
    unasked = finished(command_line, "parked", "discard", first)
    await execute(awkward, "DROP TRIGGER refusing ON tasks")
    written = finished(command_line, "parked", "retry", first)
    given_up = finished(command_line, "parked", "discard", second, "--yes")
    nothing = finished(command_line, "parked", "retry", first)

    assert [(task in listed.stdout) for task in (first, second, "not today")] == [True] * 3
    assert (in_vain.returncode, in_vain.stdout.count("still parked")) == (1, 2)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert (written.returncode, written.stdout.split(maxsplit=1)) == (0, [first, "written\n"])
    assert (given_up.returncode, "1 events discarded" in given_up.stdout) == (0, True)
    assert nothing.returncode == 3
    assert await rows(awkward, PARKED) == []
    assert {row for (row,) in await rows(awkward, "SELECT task_id::text FROM tasks")} == {first, second}
