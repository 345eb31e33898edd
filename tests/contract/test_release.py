"""release: assigned | executing -> queued."""

import pytest

from tests.contract.situations import claimed_ids, events, held, submit_count, task_in
from tests.kit import Kit
from tideq.queue_core.errors import StaleLease
from tideq.queue_core.states import Reason, TaskState


async def test_release_of_an_assigned_task_costs_nothing_and_keeps_its_place(kit: Kit) -> None:
    task_ids = await submit_count(kit, 3)
    await kit.worker()
    claimed = await kit.claimed()
    rank = (await kit.read(claimed.task_id)).rank
    await kit.clock.advance(10_000)

    (outcome,) = await kit.attempts.release("w1", held(claimed))

    task = await kit.read(claimed.task_id)
    assert outcome.details == ("queued",)
    assert (task.state, task.reason, task.rank) == (TaskState.QUEUED, Reason.RELEASED, rank)
    assert (task.attempt, task.deliveries, task.retry_count, task.losses) == (0, 0, 0, 0)
    assert await claimed_ids(kit) == task_ids


async def test_release_of_an_executing_task_costs_nothing_and_keeps_attempts_distinct(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.attempts.release("w1", held(started))

    task = await kit.read(started.task_id)
    assert (task.deliveries, task.retry_count, task.losses, task.lane_position) == (0, 0, 0, 0)
    assert (await kit.claimed()).attempt == started.attempt + 1


async def test_release_makes_the_lease_stale(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.attempts.release("w1", held(started))

    with pytest.raises(StaleLease):
        await kit.complete(started)


async def test_release_repeated_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.attempts.release("w1", held(started))
    before = await kit.dump()

    (outcome,) = await kit.attempts.release("w1", held(started))

    assert isinstance(outcome.error, StaleLease)
    assert await kit.dump() == before


async def test_release_by_another_worker_changes_nothing(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    (outcome,) = await kit.attempts.release("w2", held(started))

    assert isinstance(outcome.error, StaleLease)
    assert await kit.dump() == before


async def test_release_tells_history(kit: Kit) -> None:
    await kit.worker()
    claimed = await task_in(kit, TaskState.ASSIGNED)

    await kit.attempts.release("w1", held(claimed))

    told = (await events(kit, claimed.task_id))[-1]
    assert (told.state, told.reason, told.record.number("version")) == ("queued", "released", 3)


async def test_release_a_hundred_times_never_makes_a_dead_letter(kit: Kit) -> None:
    await kit.worker()
    task_id = await kit.submit()

    for _ in range(100):
        await kit.attempts.release("w1", held(await kit.started()))

    assert (await kit.read(task_id)).state is TaskState.QUEUED
