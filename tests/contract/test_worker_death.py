"""lose: executing -> queued | dead_letter, when the worker that held the task fell silent."""

from itertools import pairwise

import pytest

from tests.contract.situations import events, started_count, submit_count, task_in
from tests.kit import Kit
from tideq.queue_core.errors import StaleLease, UnknownWorker
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Task

SILENCE_MS = 90_000


async def tasks_of(kit: Kit, task_ids: list[str]) -> list[Task]:
    return [task for task in await kit.queue.read_many(task_ids) if task is not None]


async def test_death_of_a_worker_costs_a_loss_and_nothing_else(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    rank = (await kit.read(started.task_id)).rank
    await kit.clock.advance(SILENCE_MS)

    assert await kit.queue.sweep() == 1

    task = await kit.read(started.task_id)
    assert (task.state, task.reason, task.rank) == (TaskState.QUEUED, Reason.WORKER_LOST, rank)
    assert (task.losses, task.retry_count, task.deliveries) == (1, 0, 0)
    assert (await events(kit, started.task_id))[-1].body == task.errors[0]
    assert b"WORKER_LOST" in task.errors[0]


async def test_death_comes_at_the_heartbeat_timeout_and_not_before(kit: Kit) -> None:
    await kit.worker()
    await task_in(kit, TaskState.EXECUTING)

    await kit.clock.advance(SILENCE_MS - 1_000)
    early = await kit.queue.sweep()
    await kit.clock.advance(1_000)
    due = await kit.queue.sweep()

    assert (early, due) == (0, 1)


async def test_death_is_put_off_by_every_heartbeat(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    for _ in range(5):
        await kit.clock.advance(SILENCE_MS - 1_000)
        await kit.fleet.heartbeat("w1")
        assert await kit.queue.sweep() == 0

    assert await kit.complete(started) == "completed"


async def test_death_of_a_worker_with_an_unstarted_task_costs_a_delivery(kit: Kit) -> None:
    await kit.worker()
    await kit.submit()
    claim = await kit.queue.claim("w1", assignment_ms=1_000_000)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    task = await kit.read(claim.tasks[0].task_id)
    assert (task.state, task.reason) == (TaskState.QUEUED, Reason.ASSIGNMENT_LAPSED)
    assert (task.deliveries, task.losses, task.visible_at_ms) == (1, 0, None)


async def test_death_for_the_third_time_makes_a_dead_letter_of_the_poison(kit: Kit) -> None:
    task_id = await kit.submit()

    for number in range(3):
        await kit.worker(f"w{number}")
        await kit.started(f"w{number}")
        await kit.clock.advance(SILENCE_MS)
        await kit.queue.sweep()
        await kit.clock.advance(10_000)

    task = await kit.read(task_id)
    assert (task.state, task.reason, task.losses) == (TaskState.DEAD_LETTER, Reason.POISON, 3)
    await kit.assert_sound()


async def test_death_makes_the_dead_workers_words_conflicts(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()

    with pytest.raises(StaleLease):
        await kit.complete(started)
    with pytest.raises(UnknownWorker):
        await kit.fleet.heartbeat("w1")
    with pytest.raises(UnknownWorker):
        await kit.queue.claim("w1")


async def test_death_is_counted(kit: Kit) -> None:
    await kit.worker()
    await started_count(kit, 2)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    stats = await kit.insight.stats()
    assert (stats.recent["worker_losses"], stats.recent["workers_lost"]) == (2, 1)
    assert (stats.workers.active, stats.workers.dead) == (0, 1)


# Stagger


async def test_death_brings_tasks_back_a_tenth_of_a_second_apart(kit: Kit) -> None:
    await kit.worker()
    tasks = await started_count(kit, 30)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    back = sorted(task.visible_at_ms or 0 for task in await tasks_of(kit, [task.task_id for task in tasks]))
    assert [later - sooner for sooner, later in pairwise(back)] == [100] * 29


@pytest.mark.parametrize("count", [1, 99, 100, 101, 350])
async def test_death_brings_everything_back_within_ten_seconds(kit: Kit, count: int) -> None:
    await kit.worker()
    tasks = await started_count(kit, count)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    # The outbox tells when each was to come back; the first may be back already while the last are still moved.
    lost = [event.record for event in await events(kit) if event.reason == Reason.WORKER_LOST]
    swept_ms = min(record.number("queued_ms") for record in lost)
    back = sorted(record.number("visible_ms") for record in lost)
    assert len({event.task_id for event in await events(kit)}) == len(lost) == len(tasks) == count
    assert swept_ms <= back[0]
    assert back[-1] <= swept_ms + 10_000
    assert all(1 <= later - sooner <= 100 for sooner, later in pairwise(back))


async def test_death_after_an_earlier_one_was_half_recovered_is_staggered_all_the_same(kit: Kit) -> None:
    # A claim recovers fifty of sixty tasks; then the worker speaks up again, takes more, and dies for good.
    await kit.worker("w1")
    await kit.worker("w2", task_types=("nothing",))
    first = await started_count(kit, 60)
    await kit.clock.advance(SILENCE_MS)
    await kit.fleet.heartbeat("w2")
    await kit.queue.claim("w2")
    await kit.fleet.heartbeat("w1")
    ids = [task.task_id for task in first if (await kit.read(task.task_id)).state is TaskState.EXECUTING]
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    back = sorted(task.visible_at_ms or 0 for task in await tasks_of(kit, ids))
    assert len(back) == 10
    assert [later - sooner for sooner, later in pairwise(back)] == [100] * 9


# Two things due at once


async def test_death_found_together_with_a_lapse_costs_only_the_delivery(kit: Kit) -> None:
    await kit.worker()
    claimed = await task_in(kit, TaskState.ASSIGNED)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    task = await kit.read(claimed.task_id)
    assert (task.deliveries, task.losses, task.version) == (1, 0, 3)
    assert task.reason is Reason.ASSIGNMENT_LAPSED


async def test_death_found_together_with_a_time_out_moves_the_task_once(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=60_000)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    task = await kit.read(started.task_id)
    assert task.version == 4
    assert task.losses + task.retry_count == 1


async def test_death_found_together_with_a_last_time_out_loses_no_task(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=60_000, max_retries=0)
    await kit.clock.advance(SILENCE_MS)

    await kit.queue.sweep()

    assert len(await events(kit, started.task_id)) == 4
    await kit.assert_sound()


async def test_death_of_a_worker_of_many_kinds_of_tasks_accounts_for_all(kit: Kit) -> None:
    await kit.worker()
    started = await started_count(kit, 5)
    await submit_count(kit, 5)
    claim = await kit.queue.claim("w1", 5, assignment_ms=1_000_000)
    await kit.clock.advance(SILENCE_MS)

    assert await kit.queue.sweep() == 10

    assert {task.losses for task in await tasks_of(kit, [task.task_id for task in started])} == {1}
    assert {task.deliveries for task in await tasks_of(kit, [task.task_id for task in claim.tasks])} == {1}
