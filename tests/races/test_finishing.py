"""Races to the end of an execution: one ending is accepted, the other side is told what became of the task."""

from collections import Counter

import pytest

from tests.kit import Kit
from tests.races.outbox import audit
from tests.races.racing import ROUNDS, Sides, assert_contested
from tideq.queue_core.attempts import Extension
from tideq.queue_core.errors import QueueError, StaleLease, WrongState
from tideq.queue_core.scripts.replies import Outcome
from tideq.queue_core.states import Reason, TaskState
from tideq.queue_core.task import ClaimedTask


async def test_of_a_cancel_and_a_result_one_ends_the_task(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for task in await sides.executing():
        completed, cancelled = await sides.race(
            sides.left.complete(task, result=b'"done"'), sides.right.queue.cancel(task.task_id)
        )

        ended = await sides.left.read(task.task_id)
        if completed == "completed":
            assert isinstance(cancelled, WrongState)
            assert (cancelled.state, ended.state, ended.result) == ("completed", TaskState.COMPLETED, b'"done"')
        else:
            assert isinstance(completed, WrongState)
            assert isinstance(cancelled, Outcome)
            assert (completed.state, ended.state, ended.result) == ("cancelled", TaskState.CANCELLED, None)
            assert cancelled.details == ("executing", "w1")
        wins[ended.state.value] += 1

    assert_contested(wins, "completed", "cancelled")
    await audit(sides.left)


async def test_of_two_different_results_of_one_lease_one_is_accepted(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for task in await sides.executing():
        answers = await sides.race(
            sides.left.complete(task, result=b'"left"'), sides.right.complete(task, result=b'"right"')
        )

        (loser,) = [answer for answer in answers if isinstance(answer, QueueError)]
        assert isinstance(loser, WrongState)
        assert loser.state == "completed"
        winner = "left" if answers[0] == "completed" else "right"
        assert (await sides.left.read(task.task_id)).result == f'"{winner}"'.encode()
        wins[winner] += 1

    assert_contested(wins, "left", "right")
    await audit(sides.left)


async def test_the_same_result_delivered_twice_at_once_is_accepted_twice_and_happens_once(sides: Sides) -> None:
    for task in await sides.executing():
        answers = await sides.race(
            sides.left.complete(task, result=b'"same"'), sides.right.complete(task, result=b'"same"')
        )

        assert answers == ("completed", "completed")

    assert {len(story) for story in (await audit(sides.left)).values()} == {4}
    assert (await sides.left.insight.stats()).recent["completed"] == ROUNDS


async def test_of_a_result_and_a_failure_one_is_accepted(sides: Sides) -> None:
    wins: Counter[str] = Counter()
    for task in await sides.executing(max_retries=0):
        completed, failed = await sides.race(sides.left.complete(task), sides.right.fail(task))

        (loser,) = [answer for answer in (completed, failed) if isinstance(answer, QueueError)]
        ended = await sides.left.read(task.task_id)
        assert isinstance(loser, WrongState)
        assert loser.state == ended.state == (completed if failed is loser else failed)
        wins[ended.state.value] += 1

    assert_contested(wins, "completed", "dead_letter")
    await audit(sides.left)


@pytest.mark.parametrize(
    ("max_retries", "reason", "refused"),
    [(0, Reason.RETRIES_EXHAUSTED, WrongState), (1, Reason.TIMED_OUT, StaleLease)],
)
async def test_of_a_result_and_the_deadline_one_ends_the_attempt(
    sides: Sides, max_retries: int, reason: Reason, refused: type[WrongState | StaleLease]
) -> None:
    wins: Counter[str] = Counter()
    for _ in range(ROUNDS):
        (task,) = await sides.executing(1, max_retries=max_retries, timeout_ms=60_000)
        await sides.left.clock.advance(60_000)

        completed, moved = await sides.race(sides.left.complete(task), sides.right.queue.sweep())

        ended = await sides.left.read(task.task_id)
        if completed == "completed":
            assert (moved, ended.state) == (0, TaskState.COMPLETED)
        else:
            assert isinstance(completed, refused)
            assert (moved, ended.reason, completed.state) == (1, reason, ended.state)
        wins[await _put_away(sides.right, task)] += 1

    assert_contested(wins, "completed", "dead_letter" if max_retries == 0 else "cancelled")
    await audit(sides.left)


async def _put_away(kit: Kit, task: ClaimedTask) -> str:
    """A task that waits for its retry would be claimed in a later round: call it off. Returns how the task ended."""
    if (await kit.read(task.task_id)).state is TaskState.QUEUED:
        await kit.queue.cancel(task.task_id)
    return (await kit.read(task.task_id)).state.value


async def test_a_heartbeat_and_an_extension_do_not_hold_on_to_a_task_that_failed(sides: Sides) -> None:
    async def hold_on(task: ClaimedTask) -> Outcome:
        await sides.right.fleet.heartbeat("w1")
        extension = Extension(task.task_id, task.lease, 3_600_000)
        return (await sides.right.attempts.extend("w1", [extension]))[0].unwrap()

    wins: Counter[str] = Counter()
    for task in await sides.executing(timeout_ms=60_000):
        failed, extended = await sides.race(_slowly_fail(sides, task), hold_on(task))

        waiting = await sides.left.read(task.task_id)
        assert failed == "queued"
        assert (waiting.retry_count, waiting.timeout_ms) == (1, 60_000)
        assert waiting.visible_at_ms == waiting.state_since_ms + 10_000
        if isinstance(extended, StaleLease):
            assert extended.state == "queued"
        else:
            assert isinstance(extended, Outcome)
        wins["refused" if isinstance(extended, StaleLease) else "extended"] += 1

    assert_contested(wins, "extended", "refused")
    assert {len(story) for story in (await audit(sides.left, endings=0)).values()} == {4}


async def _slowly_fail(sides: Sides, task: ClaimedTask) -> str:
    """Half the time after a heartbeat of its own, so that either side's second word may come first."""
    if sides.luck.random() < 0.5:
        await sides.left.fleet.heartbeat("w1")
    return await sides.left.fail(task, jitter=0.0)
