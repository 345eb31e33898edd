"""claim with `starts`: queued -> assigned -> executing, as the task is handed out."""

import pytest

from tests.contract.situations import events, held, submit_count
from tests.kit import Kit
from tideq.queue_core.errors import StaleLease
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Claim


async def started_claim(kit: Kit, wanted: int = 1, poll_id: str = "p") -> Claim:
    return await kit.queue.claim("w1", wanted, poll_id=poll_id, starts=True)


async def test_the_task_is_executing_and_hidden_until_its_deadline(kit: Kit) -> None:
    task_id = await kit.submit(timeout_ms=5_000)
    await kit.worker()

    claim = await started_claim(kit)

    task = await kit.read(task_id)
    assert (task.state, task.reason, task.worker_id) == (TaskState.EXECUTING, Reason.STARTED, "w1")
    assert task.visible_at_ms == claim.tasks[0].visible_at_ms == claim.now_ms + 5_000
    assert (task.attempt, task.version) == (1, 3)
    assert task.assigned_at_ms == task.started_at_ms == claim.now_ms
    assert claim.tasks[0].is_started


async def test_a_claim_that_does_not_ask_for_it_starts_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()

    assert not (await kit.claimed()).is_started


async def test_a_draining_worker_gets_nothing_and_is_told_to_drain(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.worker()
    await kit.fleet.drain("w1")

    claim = await started_claim(kit)

    assert (claim.tasks, claim.should_drain) == ((), True)
    assert (await kit.read(task_id)).state is TaskState.QUEUED


async def test_history_hears_of_both_transitions(kit: Kit) -> None:
    task_id = await kit.submit(timeout_ms=5_000)
    await kit.worker()

    claim = await started_claim(kit)

    told = await events(kit, task_id)
    assert [(each.state, each.reason, each.record.number("version")) for each in told] == [
        ("queued", "submitted", 1),
        ("assigned", "claimed", 2),
        ("executing", "started", 3),
    ]
    assert [each.record.number("visible_ms") - claim.now_ms for each in told[1:]] == [30_000, 5_000]


async def test_its_result_is_taken_without_a_start(kit: Kit) -> None:
    await submit_count(kit, 3)
    await kit.worker()

    for task in (await started_claim(kit, 3)).tasks:
        await kit.complete(task)

    assert (await kit.insight.stats()).by_state == {"queued": 0, "assigned": 0, "executing": 0}


async def test_a_start_besides_changes_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    (task,) = (await started_claim(kit)).tasks
    await kit.clock.advance(1_000)

    await kit.start(task)

    assert (await kit.read(task.task_id)).visible_at_ms == task.visible_at_ms


async def test_asked_again_by_its_poll_id_it_hands_out_the_same(kit: Kit) -> None:
    await submit_count(kit, 5)
    await kit.worker()
    first = await started_claim(kit, 2)

    again = await started_claim(kit, 2)

    assert again.tasks == first.tasks
    assert (again.is_repeat, first.answer, again.answer) == (True, 1, 2)
    assert (await kit.read(first.tasks[0].task_id)).version == 3


async def test_asked_again_it_hands_out_only_what_is_not_done(kit: Kit) -> None:
    await submit_count(kit, 2)
    await kit.worker()
    first = await started_claim(kit, 2)
    await kit.complete(first.tasks[0])

    assert (await started_claim(kit, 2)).tasks == first.tasks[1:]


async def test_asked_again_without_starts_it_repeats_nothing_that_runs(kit: Kit) -> None:
    task_ids = await submit_count(kit, 2)
    await kit.worker()
    await started_claim(kit)

    other = await kit.queue.claim("w1", 1, poll_id="p")

    assert [(task.task_id, task.is_started) for task in other.tasks] == [(task_ids[1], False)]


async def test_asked_again_with_starts_it_leaves_what_was_assigned_to_be_started(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    first = await kit.queue.claim("w1", 1, poll_id="p")

    assert (await started_claim(kit)).tasks == first.tasks


async def test_withdrawn_it_goes_back_in_its_place_and_pays_nothing(kit: Kit) -> None:
    task_ids = await submit_count(kit, 3)
    await kit.worker()
    ranks = [(await kit.read(task_id)).rank for task_id in task_ids]
    claim = await started_claim(kit, 2)

    assert await kit.queue.undo_claim("w1", "p", claim.answer, starts=True) == 2

    tasks = [await kit.read(task_id) for task_id in task_ids]
    assert [(task.state, task.deliveries, task.losses, task.retry_count) for task in tasks] == [("queued", 0, 0, 0)] * 3
    assert [task.rank for task in tasks] == ranks
    with pytest.raises(StaleLease):
        await kit.complete(claim.tasks[0])


async def test_withdrawn_after_it_was_asked_for_again_nothing_goes_back(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    first = await started_claim(kit)
    await started_claim(kit)
    before = await kit.dump()

    assert await kit.queue.undo_claim("w1", "p", first.answer, starts=True) == 0

    assert await kit.dump() == before


async def test_at_its_deadline_it_costs_a_retry(kit: Kit) -> None:
    task_id = await kit.submit(timeout_ms=5_000)
    await kit.worker()
    await started_claim(kit)
    await kit.clock.advance(5_000)

    await kit.queue.sweep()

    task = await kit.read(task_id)
    assert (task.reason, task.retry_count, task.deliveries) == (Reason.TIMED_OUT, 1, 0)


async def test_with_its_worker_lost_it_costs_a_loss(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.worker()
    await started_claim(kit)
    await kit.clock.advance(90_000)

    await kit.queue.sweep()

    task = await kit.read(task_id)
    assert (task.reason, task.losses, task.deliveries) == (Reason.WORKER_LOST, 1, 0)


async def test_handed_back_it_costs_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    (task,) = (await started_claim(kit)).tasks

    (outcome,) = await kit.attempts.release("w1", held(task))

    assert outcome.unwrap().details == ("queued",)
    after = await kit.read(task.task_id)
    assert (after.state, after.losses, after.deliveries, after.retry_count) == (TaskState.QUEUED, 0, 0, 0)
