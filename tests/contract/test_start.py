"""start: assigned -> executing."""

import pytest

from tests.contract.situations import NEVER_MADE_ID, events, held, submit_count
from tests.kit import Kit
from tideq.queue_core.attempts import LeaseRef
from tideq.queue_core.errors import InvalidRequest, StaleLease, TaskNotFound
from tideq.queue_core.states import Reason, TaskState


async def test_start_hides_the_task_until_its_execution_deadline(kit: Kit) -> None:
    await kit.submit(timeout_ms=45_000)
    await kit.worker()
    claimed = await kit.claimed()

    (outcome,) = await kit.attempts.start("w1", held(claimed))

    task = await kit.read(claimed.task_id)
    assert (task.state, task.reason, task.version) == (TaskState.EXECUTING, Reason.STARTED, 3)
    assert task.started_at_ms is not None
    assert task.visible_at_ms == task.started_at_ms + 45_000
    assert outcome.details == (str(task.visible_at_ms),)


async def test_start_repeated_is_answered_like_the_first_time_and_changes_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    claimed = await kit.claimed()
    first = await kit.attempts.start("w1", held(claimed))
    before = await kit.dump()
    await kit.clock.advance(5_000)

    again = await kit.attempts.start("w1", held(claimed))

    assert again == first
    assert {**await kit.dump(), kit.keys.key("meta"): None} == {**before, kit.keys.key("meta"): None}


async def test_start_by_a_stale_lease_changes_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    stale = await kit.claimed()
    await kit.attempts.release("w1", held(stale))
    await kit.claimed()
    before = await kit.dump()

    with pytest.raises(StaleLease) as refusal:
        await kit.start(stale)

    assert refusal.value.state == "assigned"
    assert await kit.dump() == before


async def test_start_by_another_worker_changes_nothing(kit: Kit) -> None:
    await kit.submit()
    await kit.worker("w1")
    await kit.worker("w2")
    claimed = await kit.claimed("w1")
    before = await kit.dump()

    with pytest.raises(StaleLease):
        await kit.start(claimed, "w2")

    assert await kit.dump() == before


async def test_start_after_the_assignment_lapsed_and_was_swept_is_stale(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    claimed = await kit.claimed()
    await kit.clock.advance(30_000)
    await kit.queue.sweep()

    with pytest.raises(StaleLease) as refusal:
        await kit.start(claimed)

    assert refusal.value.state == "queued"


async def test_start_after_the_assignment_timeout_but_before_anyone_took_it_is_accepted(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    claimed = await kit.claimed()

    await kit.clock.advance(31_000)
    await kit.start(claimed)

    assert (await kit.read(claimed.task_id)).state is TaskState.EXECUTING


async def test_start_of_an_unknown_task_is_refused(kit: Kit) -> None:
    (outcome,) = await kit.attempts.start("w1", [LeaseRef(NEVER_MADE_ID, "1-a-1")])

    assert isinstance(outcome.error, TaskNotFound)


async def test_start_of_many_answers_each_row_by_itself(kit: Kit) -> None:
    await submit_count(kit, 2)
    await kit.worker()
    first, second = (await kit.queue.claim("w1", 2)).tasks

    outcomes = await kit.attempts.start(
        "w1", [*held(first), LeaseRef(second.task_id, "1-wrong-2"), LeaseRef(NEVER_MADE_ID, "x")]
    )

    assert [type(outcome.error) for outcome in outcomes] == [type(None), StaleLease, TaskNotFound]
    assert [outcome.task_id for outcome in outcomes] == [first.task_id, second.task_id, NEVER_MADE_ID]
    assert (await kit.read(second.task_id)).state is TaskState.ASSIGNED


async def test_start_of_a_thousand_starts_all(kit: Kit) -> None:
    await submit_count(kit, 1_000)
    await kit.worker()
    claim = await kit.queue.claim("w1", 1_000)

    await kit.attempts.start("w1", held(*claim.tasks))

    assert (await kit.insight.stats()).by_state == {"queued": 0, "assigned": 0, "executing": 1_000}
    assert sum(event.reason == "started" for event in await events(kit)) == 1_000


async def test_start_of_none_is_refused(kit: Kit) -> None:
    with pytest.raises(InvalidRequest):
        await kit.attempts.start("w1", [])


async def test_heartbeats_never_move_the_execution_deadline(kit: Kit) -> None:
    await kit.submit()
    await kit.worker()
    started = await kit.started()
    deadline_ms = (await kit.read(started.task_id)).visible_at_ms

    await kit.clock.advance(60_000)
    await kit.fleet.heartbeat("w1")

    assert (await kit.read(started.task_id)).visible_at_ms == deadline_ms
