"""purge: a terminal task, removed for good."""

import pytest

from tests.contract.situations import NEVER_MADE_ID, events, task_in
from tests.kit import Kit
from tideq.queue_core.errors import TaskNotFound, WrongState
from tideq.queue_core.states import TaskState
from tideq.queue_core.task import NewTask
from tideq.queue_core.transitions import LIVE, TERMINAL

DAY_MS = 86_400_000


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_purge_removes_a_task_in_every_terminal_state(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    ended = await task_in(kit, state)

    await kit.queue.purge(ended.task_id)

    assert await kit.queue.read_many([ended.task_id]) == [None]
    assert (await kit.insight.stats()).dead_letter_count == 0


@pytest.mark.parametrize("state", sorted(LIVE))
async def test_purge_of_a_live_task_changes_nothing(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    live = await task_in(kit, state)
    before = await kit.dump()

    with pytest.raises(WrongState) as refusal:
        await kit.queue.purge(live.task_id)

    assert refusal.value.state == state
    assert await kit.dump() == before


async def test_purge_tells_history_the_next_version(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.COMPLETED)

    await kit.queue.purge(ended.task_id)

    told = (await events(kit, ended.task_id))[-1]
    assert (told.state, told.reason, told.record.number("version")) == ("completed", "purged", 5)


async def test_purge_frees_the_idempotency_key(kit: Kit) -> None:
    task_id = await kit.submit(idempotency_key="k")
    await kit.queue.cancel(task_id)

    await kit.queue.purge(task_id)

    assert await kit.submit(idempotency_key="k") != task_id


async def test_purge_leaves_a_key_that_stands_for_a_later_task(kit: Kit) -> None:
    old = await kit.submit(idempotency_key="k")
    await kit.queue.cancel(old)
    await kit.clock.advance(DAY_MS)
    new = await kit.submit(idempotency_key="k")

    await kit.queue.purge(old)

    again = await kit.queue.submit(NewTask(task_type="resize", idempotency_key="k"))
    assert (again.task_id, again.is_new) == (new, False)


async def test_purge_repeated_is_refused(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.COMPLETED)
    await kit.queue.purge(ended.task_id)

    with pytest.raises(TaskNotFound):
        await kit.queue.purge(ended.task_id)


async def test_purge_of_many_answers_each_row_by_itself(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.COMPLETED)
    live = await kit.submit()

    outcomes = await kit.queue.purge_many([live, ended.task_id, NEVER_MADE_ID])

    assert [type(outcome.error) for outcome in outcomes] == [WrongState, type(None), TaskNotFound]


async def test_purge_of_the_same_task_twice_in_a_batch_finds_it_once(kit: Kit) -> None:
    await kit.worker()
    ended = await task_in(kit, TaskState.COMPLETED)

    first, second = await kit.queue.purge_many([ended.task_id, ended.task_id])

    assert first.error is None
    assert isinstance(second.error, TaskNotFound)
    assert len([event for event in await events(kit, ended.task_id) if event.record.text("reason") == "purged"]) == 1
