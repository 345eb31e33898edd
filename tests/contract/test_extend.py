"""extend: executing, until later."""

import pytest

from tests.contract.situations import held, started_count, task_in
from tests.kit import Kit
from tideq.queue_core.attempts import Extension
from tideq.queue_core.errors import InvalidRequest, StaleLease, WrongState
from tideq.queue_core.settings import Leases, QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import ClaimedTask

MAX_EXECUTION_MS = 1_000_000


@pytest.fixture
def settings() -> QueueSettings:
    return QueueSettings(leases=Leases(max_execution_ms=MAX_EXECUTION_MS))


async def extend(kit: Kit, task: ClaimedTask, extension_ms: int, worker_id: str = "w1") -> int:
    (outcome,) = await kit.attempts.extend(worker_id, [Extension(task.task_id, task.lease, extension_ms)])
    return int(outcome.unwrap().details[0])


async def test_extend_moves_the_deadline_to_that_long_from_now(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.clock.advance(5_000)

    deadline_ms = await extend(kit, started, 700_000)

    task = await kit.read(started.task_id)
    assert task.visible_at_ms == deadline_ms
    assert 0 <= deadline_ms - (task.started_at_ms or 0) - 705_000 < 1_000
    assert (task.state, task.version) == (TaskState.EXECUTING, 3)


async def test_extend_keeps_the_task_from_timing_out(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=60_000)

    await extend(kit, started, 85_000)
    await kit.clock.advance(70_000)

    assert await kit.queue.sweep() == 0
    assert await kit.complete(started) == "completed"


async def test_extend_by_less_than_is_left_does_not_bring_the_deadline_nearer(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    deadline_ms = (await kit.read(started.task_id)).visible_at_ms

    assert await extend(kit, started, 1) == deadline_ms

    assert (await kit.read(started.task_id)).visible_at_ms == deadline_ms


async def test_extend_again_and_again_stops_at_the_most_an_execution_may_take(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    started_ms = (await kit.read(started.task_id)).started_at_ms or 0

    for _ in range(3):
        await kit.clock.advance(80_000)
        await kit.fleet.heartbeat("w1")
        deadline_ms = await extend(kit, started, 950_000)
        assert deadline_ms <= started_ms + MAX_EXECUTION_MS

    assert (await kit.read(started.task_id)).visible_at_ms == started_ms + MAX_EXECUTION_MS


async def test_extend_by_a_stale_lease_changes_nothing(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.attempts.release("w1", held(started))
    await kit.started()
    before = await kit.dump()

    with pytest.raises(StaleLease):
        await extend(kit, started, 900_000)

    assert await kit.dump() == before


@pytest.mark.parametrize("state", [TaskState.ASSIGNED, TaskState.COMPLETED, TaskState.CANCELLED, TaskState.DEAD_LETTER])
async def test_extend_of_a_task_that_does_not_execute_changes_nothing(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    claimed = await task_in(kit, state)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await extend(kit, claimed, 900_000)

    assert refusal.value.state == state
    assert await kit.dump() == before


async def test_extend_past_the_deadline_but_before_anyone_noticed_is_accepted(kit: Kit) -> None:
    await kit.worker()
    (started,) = await started_count(kit, 1, timeout_ms=60_000)
    await kit.clock.advance(60_001)

    await extend(kit, started, 60_000)

    assert await kit.queue.sweep() == 0


@pytest.mark.parametrize("extension_ms", [0, -1, 2**42])
async def test_extend_by_a_senseless_time_changes_nothing(kit: Kit, extension_ms: int) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await extend(kit, started, extension_ms)

    assert await kit.dump() == before
