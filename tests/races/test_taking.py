"""Races for a task that is being handed out: to one worker, under one lease, or not at all."""

import asyncio
from collections import Counter

import pytest

from tests.races.outbox import audit
from tests.races.racing import ROUNDS, Sides, assert_contested
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.errors import StaleLease, WrongState
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import Claim, ClaimedTask


async def test_of_two_claims_one_gets_the_task(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for _ in range(ROUNDS):
        task_id = await sides.left.submit()

        claims = await sides.race(sides.left.queue.claim("w1"), sides.right.queue.claim("w2"))

        (got,) = [task for claim in claims if isinstance(claim, Claim) for task in claim.tasks]
        assert (got.task_id, got.attempt) == (task_id, 1)
        assert isinstance(claims[0], Claim)
        holder = "w1" if claims[0].tasks else "w2"
        assert (await sides.left.read(task_id)).worker_id == holder
        await sides.left.start(got, holder)
        await sides.left.complete(got, holder)
        wins[holder] += 1

    assert_contested(wins, "w1", "w2")
    assert {len(story) for story in (await audit(sides.left)).values()} == {4}


async def test_many_claims_at_once_share_out_every_task_exactly_once(sides: Sides) -> None:
    submitted = [await sides.left.submit() for _ in range(ROUNDS)]

    claims = await asyncio.gather(
        *(sides.left.queue.claim("w1", 3) for _ in range(ROUNDS // 4)),
        *(sides.right.queue.claim("w2", 3) for _ in range(ROUNDS // 4)),
    )

    got = [task.task_id for claim in claims for task in claim.tasks]
    assert sorted(got) == sorted(submitted)
    await audit(sides.left, endings=0)


async def test_a_cancel_stops_a_task_whether_a_claim_came_before_it_or_not(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for _ in range(ROUNDS):
        task_id = await sides.left.submit()

        cancelled, claim = await sides.race(sides.left.queue.cancel(task_id), sides.right.queue.claim("w2"))

        assert isinstance(cancelled, Outcome)
        assert isinstance(claim, Claim)
        assert (await sides.left.read(task_id)).state is TaskState.CANCELLED
        if claim.tasks:
            assert cancelled.details == ("assigned", "w2")
            await _assert_told_to_stop(sides, claim.tasks[0])
        else:
            assert cancelled.details == ("queued", "")
        wins[cancelled.details[0]] += 1

    assert_contested(wins, "assigned", "queued")
    await audit(sides.left)


async def _assert_told_to_stop(sides: Sides, task: ClaimedTask) -> None:
    with pytest.raises(WrongState, match="cancelled"):
        await sides.right.start(task, "w2")
    assert (task.task_id, task.lease) in {
        (stop.task_id, stop.lease) for stop in (await sides.right.fleet.heartbeat("w2")).stops
    }


async def test_of_a_late_start_and_the_sweep_one_has_the_task(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for _ in range(ROUNDS):
        (task,) = await sides.assigned(1)
        await sides.left.clock.advance(30_000)

        started, moved = await sides.race(sides.left.start(task), sides.right.queue.sweep())

        found = await sides.left.read(task.task_id)
        if isinstance(started, StaleLease):
            assert (moved, started.state, found.state) == (1, "queued", TaskState.QUEUED)
            assert (found.deliveries, found.attempt) == (1, 0)
        else:
            assert (started, moved, found.state) == (None, 0, TaskState.EXECUTING)
            assert found.deliveries == 0
        await sides.left.queue.cancel(task.task_id)
        wins[found.state.value] += 1

    assert_contested(wins, "executing", "queued")
    await audit(sides.left)


async def test_of_a_late_start_and_another_workers_claim_one_has_the_task(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for _ in range(ROUNDS):
        (task,) = await sides.assigned(1)
        await sides.left.clock.advance(30_000)

        started, claim = await sides.race(sides.left.start(task), sides.right.queue.claim("w2"))

        found = await sides.left.read(task.task_id)
        assert isinstance(claim, Claim)
        if claim.tasks:
            assert isinstance(started, StaleLease)
            assert (started.state, found.worker_id) == ("assigned", "w2")
            (await sides.right.attempts.start("w2", [LeaseRef(task.task_id, claim.tasks[0].lease)]))[0].unwrap()
        else:
            assert (started, found.worker_id) == (None, "w1")
        await sides.left.queue.cancel(task.task_id)
        wins["w2" if claim.tasks else "w1"] += 1

    assert_contested(wins, "w1", "w2")
    await audit(sides.left)
