"""acknowledge: history has every event up to here; finished tasks may go after their time."""

import pytest

from tests.contract.situations import events, task_in
from tests.kit import Kit
from tideq.queue_core.settings import QueueSettings, Retention
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import LIVE, TERMINAL

EVERYTHING = "9999999999999-0"
HOUR_MS = 3_600_000
DAY_MS = 86_400_000


async def is_kept_after(kit: Kit, task_id: str, milliseconds: int) -> bool:
    """Whether the store still has the task when this much more time has passed and been swept."""
    await kit.clock.advance(milliseconds)
    await kit.queue.sweep()
    return (await kit.queue.read_many([task_id])) != [None]


async def test_acknowledge_trims_the_outbox_below_the_first_entry_kept(kit: Kit) -> None:
    for _ in range(3):
        await kit.submit()
    entries = await kit.client.xrange(kit.keys.key("outbox"))

    await kit.engine.partition.acknowledge(entries[2][0].decode(), [])

    assert [entry for entry, _ in await kit.client.xrange(kit.keys.key("outbox"))] == [entries[2][0]]


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_acknowledge_of_a_finished_task_lets_it_go_after_an_hour(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    ended = await task_in(kit, state)
    await kit.engine.partition.acknowledge(EVERYTHING, [(ended.task_id, (await kit.read(ended.task_id)).version)])

    is_kept = [await is_kept_after(kit, ended.task_id, wait_ms) for wait_ms in (HOUR_MS - 5_000, 5_000)]

    assert is_kept == [True, False]
    assert await events(kit) == []


async def test_a_finished_task_history_has_not_acknowledged_stays(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.COMPLETED)

    assert await is_kept_after(kit, ended.task_id, 7 * DAY_MS)


@pytest.mark.parametrize("state", sorted(LIVE))
async def test_acknowledge_never_lets_a_live_task_go(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    live = await task_in(kit, state)

    await kit.engine.partition.acknowledge(EVERYTHING, [(live.task_id, (await kit.read(live.task_id)).version)])

    assert await is_kept_after(kit, live.task_id, 2 * HOUR_MS)


async def test_acknowledge_of_an_older_version_lets_nothing_go(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.FAILED)
    version = (await kit.read(ended.task_id)).version
    await kit.queue.retry(ended.task_id)
    await kit.queue.cancel(ended.task_id)

    await kit.engine.partition.acknowledge(EVERYTHING, [(ended.task_id, version)])

    assert await is_kept_after(kit, ended.task_id, 2 * HOUR_MS)


async def test_acknowledge_of_a_task_that_is_retried_later_does_not_let_the_new_life_go(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.FAILED)
    await kit.engine.partition.acknowledge(EVERYTHING, [(ended.task_id, (await kit.read(ended.task_id)).version)])
    await kit.queue.retry(ended.task_id)
    await kit.queue.cancel(ended.task_id)

    assert await is_kept_after(kit, ended.task_id, 2 * HOUR_MS)


class TestWithoutHistory:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(retention=Retention(has_history=False))

    async def test_finished_tasks_go_by_themselves_after_an_hour(self, kit: Kit) -> None:
        await kit.worker()
        ended = await task_in(kit, TaskState.COMPLETED)

        is_kept = [await is_kept_after(kit, ended.task_id, wait_ms) for wait_ms in (HOUR_MS - 5_000, 5_000)]

        assert is_kept == [True, False]

    async def test_dead_letters_stay_as_long_as_they_are_listed(self, kit: Kit) -> None:
        await kit.worker()
        dead = await task_in(kit, TaskState.DEAD_LETTER)

        assert [await is_kept_after(kit, dead.task_id, days * DAY_MS) for days in (29, 2)] == [True, False]
        assert (await kit.insight.stats()).dead_letter_count == 0
