"""acknowledge: history has every event up to here; finished tasks may go after their time."""

import pytest

from tests.contract.situations import events, task_in
from tests.kit import Kit
from tideq.queue_core.settings import QueueSettings, Retention
from tideq.queue_core.states import TaskState
from tideq.queue_core.transitions import LIVE, TERMINAL

EVERYTHING = "9999999999999-0"


async def lifetime_ms(kit: Kit, task_id: str) -> int:
    """How long the record will stay; -1 is for ever."""
    return await kit.client.pttl(kit.keys.prefix("task") + task_id)


async def test_acknowledge_trims_the_outbox_below_the_first_entry_kept(kit: Kit) -> None:
    for _ in range(3):
        await kit.submit()
    entries = await kit.client.xrange(kit.keys.key("outbox"))

    await kit.queue.acknowledge(entries[2][0].decode(), [])

    assert [entry for entry, _ in await kit.client.xrange(kit.keys.key("outbox"))] == [entries[2][0]]


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_acknowledge_of_a_finished_task_lets_it_go_after_an_hour(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    ended = await task_in(kit, state)
    before_ms = await lifetime_ms(kit, ended.task_id)

    await kit.queue.acknowledge(EVERYTHING, [(ended.task_id, (await kit.read(ended.task_id)).version)])

    assert before_ms == -1
    assert 3_500_000 < await lifetime_ms(kit, ended.task_id) <= 3_600_000
    assert await events(kit) == []


@pytest.mark.parametrize("state", sorted(LIVE))
async def test_acknowledge_never_lets_a_live_task_go(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    live = await task_in(kit, state)

    await kit.queue.acknowledge(EVERYTHING, [(live.task_id, (await kit.read(live.task_id)).version)])

    assert await lifetime_ms(kit, live.task_id) == -1


async def test_acknowledge_of_an_older_version_lets_nothing_go(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.FAILED)
    version = (await kit.read(ended.task_id)).version
    await kit.queue.retry(ended.task_id)
    await kit.queue.cancel(ended.task_id)

    await kit.queue.acknowledge(EVERYTHING, [(ended.task_id, version)])

    assert await lifetime_ms(kit, ended.task_id) == -1


class TestWithoutHistory:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(retention=Retention(has_history=False))

    async def test_finished_tasks_go_by_themselves_after_an_hour(self, kit: Kit) -> None:
        await kit.worker()
        ended = await task_in(kit, TaskState.COMPLETED)

        assert 3_500_000 < await lifetime_ms(kit, ended.task_id) <= 3_600_000

    async def test_dead_letters_stay_for_thirty_days(self, kit: Kit) -> None:
        await kit.worker()
        dead = await task_in(kit, TaskState.DEAD_LETTER)

        remaining_ms = await lifetime_ms(kit, dead.task_id)

        assert remaining_ms == -1 or remaining_ms > 29 * 86_400_000
