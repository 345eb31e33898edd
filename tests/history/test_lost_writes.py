"""A store that lost its last writes is set right by history: what ended stays ended, what was under way goes on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.api.running import environ
from tests.contract.situations import submit_count
from tests.history.servers import Server, finished, own_valkey
from tests.history.situations import replicate_all, rows, until_open
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.attempts import Success
from tideq.queue_core.errors import StaleLease, TaskNotFound, WrongState
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import ClaimedTask, NewTask

KEYED = NewTask(task_type="resize", idempotency_key="once", priority="low")
KEYED_AND_DONE = NewTask(task_type="resize", idempotency_key="once-and-done", priority="high")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Server]:
    with own_valkey(tmp_path / "valkey") as server:
        yield server


@pytest.fixture
def store(valkey: Server) -> StoreUnderTest:
    return StoreUnderTest("valkey", valkey.redis_url)


@dataclass(frozen=True)
class Lost:
    """Tasks by what happened to them after the copy to which the store went back."""

    untouched: str
    completed: ClaimedTask
    started: ClaimedTask
    failed: ClaimedTask
    submitted: str
    submitted_and_done: str
    died: str


@pytest.fixture
async def lost(kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, valkey: Server) -> Lost:
    """The store is back at the copy; history has everything; nobody has called the store since."""
    await kit.worker()
    for _ in range(4):
        await kit.submit()
    completed, failed, started = await kit.started(), await kit.started(), await kit.claimed()
    copy = valkey.copy()

    await kit.complete(completed, result=b'"done"')
    await kit.fail(failed, error=b'{"message":"first try"}')
    await kit.start(started)
    (submitted,) = await kit.queue.submit_many([KEYED])
    (done,) = await kit.queue.submit_many([KEYED_AND_DONE])
    await kit.complete(await kit.started())
    died = await kit.submit(priority="high")
    await kit.fail(await kit.started(), verdict="discard")
    (untouched,) = [each.task_id for each in (await kit.queue.claim("w1", 1)).tasks]
    await kit.queue.cancel(untouched)
    await kit.queue.retry(untouched)
    await replicate_all(kept, store.url, kit, migrated)
    valkey.go_back_to(copy)
    return Lost(untouched, completed, started, failed, submitted.task_id, done.task_id, died)


async def test_what_history_knows_better_is_mended_under_a_new_epoch(kit: Kit, lost: Lost, migrated: Database) -> None:
    await until_open(kit)

    states = {task_id: (state, version) for task_id, state, version in await rows(migrated, STANDINGS)}
    live = {task_id: each for task_id, each in states.items() if each[0] in ("queued", "assigned", "executing")}
    found = await kit.queue.read_many(sorted(states))
    assert kit.engine.scripts.epoch == "2"
    assert {task.task_id: (task.state.value, task.version) for task in found if task} == live
    assert live.keys() == {lost.untouched, lost.started.task_id, lost.failed.task_id, lost.submitted}


STANDINGS = "SELECT task_id::text, state, version FROM tasks"


async def test_a_result_history_has_is_not_accepted_again(kit: Kit, lost: Lost, migrated: Database) -> None:
    await until_open(kit)

    with pytest.raises(TaskNotFound):
        await kit.complete(lost.completed, result=b'"done"')
    assert await rows(migrated, RESULT, lost.completed.task_id) == [("completed", '"done"')]


RESULT = "SELECT state, result FROM tasks WHERE task_id = %s"


async def test_a_start_the_store_forgot_still_stands_and_its_result_is_accepted_once(
    kit: Kit, kept: OpenStore, lost: Lost, migrated: Database, store: StoreUnderTest
) -> None:
    await until_open(kit)

    assert (await kit.read(lost.started.task_id)).state is TaskState.EXECUTING
    assert await kit.complete(lost.started) == "completed"
    await replicate_all(kept, store.url, kit, migrated)

    story = "SELECT epoch, version, state FROM task_events WHERE task_id = %s ORDER BY epoch, version"
    assert await rows(migrated, story, lost.started.task_id) == [
        (1, 1, "queued"),
        (1, 2, "assigned"),
        (1, 3, "executing"),
        (2, 4, "completed"),
    ]


async def test_a_failed_attempt_the_store_forgot_has_cost_its_retry_and_its_lease_is_dead(kit: Kit, lost: Lost) -> None:
    await until_open(kit)

    task = await kit.read(lost.failed.task_id)
    assert (task.state, task.retry_count, task.errors) == (TaskState.QUEUED, 1, (b'{"message":"first try"}',))
    outcome = await kit.attempts.complete("w1", [Success(lost.failed.task_id, lost.failed.lease)])
    assert isinstance(outcome[0].error, StaleLease | WrongState)


async def test_an_idempotency_key_the_store_forgot_still_stands_for_its_task(kit: Kit, lost: Lost) -> None:
    await until_open(kit)

    again = [*await kit.queue.submit_many([KEYED]), *await kit.queue.submit_many([KEYED_AND_DONE])]
    assert [(each.task_id, each.is_new) for each in again] == [
        (lost.submitted, False),
        (lost.submitted_and_done, False),
    ]


async def test_a_dead_letter_the_store_forgot_is_listed_again(kit: Kit, lost: Lost) -> None:
    await until_open(kit)

    assert (await kit.insight.snapshot()).dead == {lost.died}


async def test_a_store_that_lost_what_history_never_had_is_sound(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, valkey: Server
) -> None:
    """History is a part of what is left, and learns the rest."""
    (known,) = await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    (unknown,) = await submit_count(kit, 1)
    copy = valkey.copy()
    await submit_count(kit, 1)
    valkey.go_back_to(copy)

    await until_open(kit)
    await replicate_all(kept, store.url, kit, migrated)

    assert kit.engine.scripts.epoch == "1"
    assert {row[0] for row in await rows(migrated, STANDINGS)} == {known, unknown}


async def test_reconcile_lists_what_it_would_mend_and_mends_it(
    queue_settings: QueueSettings, history_settings: HistorySettings, lost: Lost, kit: Kit, store: StoreUnderTest
) -> None:
    """The service does it by itself as soon as it talks to the store; here nobody has yet."""
    settings = environ(store.url, queue_settings.queue_name, DATABASE_URL=history_settings.database_url)

    listed = finished(settings, "reconcile", "--dry-run")
    mended = finished(settings, "reconcile")

    assert f"{lost.completed.task_id}  store: executing v3  history: completed v4" in listed.stdout
    assert f"{lost.submitted}  store: nothing  history: queued v1" in listed.stdout
    assert "5 differences" in listed.stdout
    assert "reconciled under epoch 2" in mended.stdout
    await until_open(kit)


async def test_reconcile_of_a_sound_store_loses_nothing_history_has_yet_to_learn(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest
) -> None:
    assert kept.guard is not None
    await submit_count(kit, 1)
    await replicate_all(kept, store.url, kit, migrated)
    (late,) = await submit_count(kit, 1)

    await kept.guard.reconcile()
    await until_open(kit)
    await replicate_all(kept, store.url, kit, migrated)

    assert late in {row[0] for row in await rows(migrated, STANDINGS)}


async def test_a_result_that_history_could_only_park_is_not_worked_for_again(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, valkey: Server
) -> None:
    await kit.worker()
    await kit.submit()
    task = await kit.started()
    copy = valkey.copy()
    await kit.complete(task, result=b'"\0"')
    await replicate_all(kept, store.url, kit, migrated)

    valkey.go_back_to(copy)
    await until_open(kit)

    with pytest.raises(TaskNotFound):
        await kit.read(task.task_id)
    assert await rows(migrated, "SELECT version FROM parked_events") == [(4,)]
