"""progress: executing, so far."""

import pytest

from tests.contract.situations import held, task_in
from tests.kit import Kit
from tideq.queue_core.attempts import ProgressReport
from tideq.queue_core.errors import InvalidRequest, StaleLease, WrongState
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import ClaimedTask, Progress


async def report(kit: Kit, task: ClaimedTask, sequence: int, percent: float, message: str = "") -> None:
    reports = [ProgressReport(task.task_id, task.lease, sequence, percent, message)]
    (await kit.attempts.progress("w1", reports))[0].unwrap()


async def test_progress_is_kept_beside_the_task(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.read(started.task_id)

    await report(kit, started, 1, 45.5, "half | way ✓")

    task = await kit.read(started.task_id)
    assert task.progress == Progress(45.5, "half | way ✓")
    assert (task.version, task.visible_at_ms) == (before.version, before.visible_at_ms)


@pytest.mark.parametrize("late", [1, 2])
async def test_progress_that_arrives_late_is_ignored(kit: Kit, late: int) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await report(kit, started, 2, 50, "newer")

    await report(kit, started, late, 10, "older")

    assert (await kit.read(started.task_id)).progress == Progress(50, "newer")


async def test_progress_sequences_are_compared_as_numbers(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await report(kit, started, 9, 9)

    await report(kit, started, 10, 10)

    assert (await kit.read(started.task_id)).progress == Progress(10, "")


async def test_progress_of_an_earlier_attempt_is_not_shown(kit: Kit) -> None:
    await kit.worker()
    first = await task_in(kit, TaskState.EXECUTING)
    await report(kit, first, 7, 70)
    await kit.fail(first)

    await kit.clock.advance(12_000)
    await kit.started()

    assert (await kit.read(first.task_id)).progress is None


async def test_progress_of_a_new_attempt_counts_its_sequence_anew(kit: Kit) -> None:
    await kit.worker()
    first = await task_in(kit, TaskState.EXECUTING)
    await report(kit, first, 7, 70)
    await kit.fail(first)
    await kit.clock.advance(12_000)
    second = await kit.started()

    await report(kit, second, 1, 5)

    assert (await kit.read(first.task_id)).progress == Progress(5, "")


async def test_progress_of_a_stale_attempt_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    stale = await task_in(kit, TaskState.EXECUTING)
    await kit.attempts.release("w1", held(stale))
    await kit.started()
    before = await kit.dump()

    with pytest.raises(StaleLease):
        await report(kit, stale, 1, 5)

    assert await kit.dump() == before


@pytest.mark.parametrize("state", [TaskState.ASSIGNED, TaskState.COMPLETED, TaskState.CANCELLED])
async def test_progress_of_a_task_that_does_not_execute_changes_nothing(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    claimed = await task_in(kit, state)
    before = await kit.dump()

    with pytest.raises(WrongState):
        await report(kit, claimed, 1, 5)

    assert await kit.dump() == before


@pytest.mark.parametrize(
    ("sequence", "percent", "message"),
    [(1, -0.1, ""), (1, 100.1, ""), (1, float("nan"), ""), (1, 5, "x" * 1_001), (-1, 5, "")],
    ids=["negative", "more-than-all", "nan", "long-message", "negative-sequence"],
)
async def test_progress_that_makes_no_sense_changes_nothing(
    kit: Kit, sequence: int, percent: float, message: str
) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await report(kit, started, sequence, percent, message)

    assert await kit.dump() == before
