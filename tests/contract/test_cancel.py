"""cancel: queued | assigned | executing -> cancelled."""

import pytest

from tests.contract.situations import NEVER_MADE_ID, claimed_ids, held, submit_count, task_in, terminal_events
from tests.kit import Kit
from tideq.queue_core.errors import InvalidRequest, TaskNotFound, WrongState
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import Stop
from tideq.queue_core.transitions import LIVE


@pytest.mark.parametrize("state", sorted(LIVE))
async def test_cancel_ends_a_task_in_every_live_state(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    claimed = await task_in(kit, state)

    outcome = await kit.queue.cancel(claimed.task_id)

    task = await kit.read(claimed.task_id)
    assert (task.state, task.reason, task.visible_at_ms) == (TaskState.CANCELLED, Reason.CANCELLED, None)
    assert outcome.details == (state, "" if state is TaskState.QUEUED else "w1")
    assert len(await terminal_events(kit, claimed.task_id)) == 1
    await kit.assert_sound()


async def test_cancel_of_a_hidden_task_ends_it(kit: Kit) -> None:
    task_id = await kit.submit(delay_ms=1_000)
    await kit.worker()

    await kit.queue.cancel(task_id)
    await kit.clock.advance(1_000)

    assert await claimed_ids(kit) == []
    await kit.assert_sound()


@pytest.mark.parametrize("state", [TaskState.ASSIGNED, TaskState.EXECUTING])
async def test_cancel_of_a_held_task_tells_its_worker_to_stop(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    claimed = await task_in(kit, state)

    await kit.queue.cancel(claimed.task_id)

    stop = Stop(claimed.task_id, claimed.lease)
    assert (await kit.fleet.heartbeat("w1")).stops == (stop,)
    assert (await kit.queue.claim("w1")).stops == (stop,)


async def test_cancel_of_a_waiting_task_tells_nobody(kit: Kit) -> None:
    await kit.worker()
    waiting = await task_in(kit, TaskState.QUEUED)

    await kit.queue.cancel(waiting.task_id)

    assert (await kit.fleet.heartbeat("w1")).stops == ()


async def test_cancel_tells_only_the_worker_that_holds_the_task(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    started = await task_in(kit, TaskState.EXECUTING, "w2")

    await kit.queue.cancel(started.task_id)

    assert (await kit.fleet.heartbeat("w1")).stops == ()
    assert len((await kit.fleet.heartbeat("w2")).stops) == 1


async def test_cancel_is_told_for_five_minutes(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.queue.cancel(started.task_id)

    await kit.clock.advance(299_000)
    told = (await kit.fleet.heartbeat("w1")).stops
    await kit.clock.advance(2_000)
    forgotten = (await kit.fleet.heartbeat("w1")).stops

    assert (len(told), len(forgotten)) == (1, 0)


async def test_cancel_never_stops_a_new_attempt_of_the_same_task(kit: Kit) -> None:
    await kit.worker()
    first = await task_in(kit, TaskState.EXECUTING)
    await kit.queue.cancel(first.task_id)
    await kit.queue.retry(first.task_id)

    second = await kit.started()

    stops = (await kit.fleet.heartbeat("w1")).stops
    assert second.task_id == first.task_id
    assert second.lease not in {stop.lease for stop in stops}
    assert await kit.complete(second) == "completed"


async def test_cancel_makes_every_later_word_of_the_holder_a_conflict(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.queue.cancel(started.task_id)
    before = await kit.dump()

    released = await kit.attempts.release("w1", held(started))
    for word in (kit.start, kit.complete, kit.fail):
        with pytest.raises(WrongState) as refusal:
            await word(started)
        assert refusal.value.state == "cancelled"

    assert isinstance(released[0].error, WrongState)
    assert await kit.dump() == before


async def test_cancel_repeated_is_refused_and_changes_nothing(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.queue.cancel(task_id)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await kit.queue.cancel(task_id)

    assert refusal.value.state == "cancelled"
    assert await kit.dump() == before


async def test_cancel_of_an_unknown_task_is_refused(kit: Kit) -> None:
    with pytest.raises(TaskNotFound):
        await kit.queue.cancel(NEVER_MADE_ID)


async def test_cancel_of_many_answers_each_row_by_itself(kit: Kit) -> None:
    first, second = await submit_count(kit, 2)
    await kit.queue.cancel(first)

    outcomes = await kit.queue.cancel_many([first, second, NEVER_MADE_ID])

    assert [type(outcome.error) for outcome in outcomes] == [WrongState, type(None), TaskNotFound]


async def test_cancel_of_a_thousand_empties_the_queue(kit: Kit) -> None:
    task_ids = await submit_count(kit, 1_000)

    await kit.queue.cancel_many(task_ids)

    assert (await kit.insight.stats()).total_depth == 0


async def test_cancel_of_none_is_refused(kit: Kit) -> None:
    with pytest.raises(InvalidRequest):
        await kit.queue.cancel_many([])
