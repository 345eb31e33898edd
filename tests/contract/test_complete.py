"""complete: executing -> completed."""

import pytest

from tests.contract.situations import (
    NEVER_MADE_ID,
    complete_all,
    events,
    held,
    started_count,
    task_in,
    terminal_events,
)
from tests.kit import Kit
from tideq.queue_core.attempts import Success
from tideq.queue_core.errors import PayloadTooLarge, StaleLease, TaskNotFound, WrongState
from tideq.queue_core.states import Reason, TaskState


async def test_complete_ends_the_task_with_its_result(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    state = await kit.complete(started, result=b'{"url": "x|y"}')

    task = await kit.read(started.task_id)
    assert state == "completed"
    assert (task.state, task.reason, task.version) == (TaskState.COMPLETED, Reason.SUCCEEDED, 4)
    assert (task.result, task.visible_at_ms, task.ended_at_ms) == (b'{"url": "x|y"}', None, task.state_since_ms)
    await kit.assert_sound()


async def test_complete_takes_the_task_out_of_the_set(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.complete(started)

    assert await kit.client.zcard(kit.keys.key("queue")) == 0
    assert (await kit.insight.stats()).by_state == {"queued": 0, "assigned": 0, "executing": 0}


async def test_complete_tells_history_with_the_result(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.complete(started, result=b'"done"')

    (ended,) = await terminal_events(kit, started.task_id)
    assert (ended.state, ended.body) == ("completed", b'"done"')
    assert [event.record.number("version") for event in await events(kit)] == [1, 2, 3, 4]


async def test_complete_repeated_with_the_same_result_is_answered_alike_and_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.complete(started, result=b"1")
    before = await kit.dump()

    assert await kit.complete(started, result=b"1") == "completed"

    assert await kit.dump() == before


async def test_complete_repeated_with_another_result_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.complete(started, result=b"1")
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await kit.complete(started, result=b"2")

    assert refusal.value.state == "completed"
    assert await kit.dump() == before


async def test_complete_by_a_stale_lease_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    stale = await task_in(kit, TaskState.EXECUTING)
    await kit.attempts.release("w1", held(stale))
    await kit.started()
    before = await kit.dump()

    with pytest.raises(StaleLease) as refusal:
        await kit.complete(stale)

    assert refusal.value.state == "executing"
    assert await kit.dump() == before


async def test_complete_by_another_worker_changes_nothing(kit: Kit) -> None:
    await kit.worker("w1")
    await kit.worker("w2")
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    with pytest.raises(StaleLease):
        await kit.complete(started, "w2")

    assert await kit.dump() == before


async def test_complete_before_the_start_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    claimed = await task_in(kit, TaskState.ASSIGNED)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await kit.complete(claimed)

    assert refusal.value.state == "assigned"
    assert await kit.dump() == before


async def test_complete_after_a_cancel_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.queue.cancel(started.task_id)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await kit.complete(started)

    assert refusal.value.state == "cancelled"
    assert await kit.dump() == before


async def test_complete_past_the_deadline_but_before_anyone_noticed_is_accepted(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.clock.advance(600_001)

    assert await kit.complete(started) == "completed"


async def test_complete_after_the_deadline_was_swept_is_stale(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=60_000)
    await kit.clock.advance(60_000)
    await kit.queue.sweep()

    with pytest.raises(StaleLease) as refusal:
        await kit.complete(started)

    assert refusal.value.state == "queued"


async def test_complete_with_a_result_of_the_largest_size_is_accepted(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    result = b"1" * kit.settings.admission.max_payload_bytes

    await kit.complete(started, result=result)

    assert (await kit.read(started.task_id)).result == result


async def test_complete_with_a_result_too_large_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    with pytest.raises(PayloadTooLarge):
        await kit.complete(started, result=b"1" * (kit.settings.admission.max_payload_bytes + 1))

    assert await kit.dump() == before


async def test_complete_of_an_unknown_task_is_refused(kit: Kit) -> None:
    (outcome,) = await kit.attempts.complete("w1", [Success(NEVER_MADE_ID, "1-a-1")])

    assert isinstance(outcome.error, TaskNotFound)


async def test_complete_of_a_thousand_ends_all(kit: Kit) -> None:
    await kit.worker()
    tasks = await started_count(kit, 1_000)

    await complete_all(kit, tasks)

    ended = [event for event in await events(kit) if event.state == "completed"]
    assert len({event.task_id for event in ended}) == len(ended) == 1_000
    assert all(event.body == b"null" for event in ended)


async def test_complete_of_many_large_results_tells_history_each_with_its_own(kit: Kit) -> None:
    await kit.worker()
    tasks = await started_count(kit, 5)
    results = {task.task_id: bytes([65 + number]) * 50_000 for number, task in enumerate(tasks)}

    await kit.attempts.complete("w1", [Success(task.task_id, task.lease, results[task.task_id]) for task in tasks])

    assert {event.task_id: event.body for event in await events(kit) if event.state == "completed"} == results


async def test_complete_of_one_task_twice_in_a_batch_is_counted_once(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    success = Success(started.task_id, started.lease, b"1")

    outcomes = await kit.attempts.complete("w1", [success, success, success._replace(result=b"2")])

    assert [outcome.details for outcome in outcomes[:2]] == [("completed",)] * 2
    assert isinstance(outcomes[2].error, WrongState)
    assert len(await terminal_events(kit, started.task_id)) == 1


async def test_complete_is_counted_with_its_duration(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.clock.advance(2_000)
    await kit.complete(started)

    recent = (await kit.insight.stats()).recent
    assert recent["completed"] == 1
    assert 2_000 <= recent["duration_ms"] < 4_000
