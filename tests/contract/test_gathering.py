"""gathering: what is submitted while a call is under way shares the next one, and none notices the others."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.kit import Kit
from tideq.queue_core.errors import IdempotencyConflict, InvalidTask, QueueFull, StoreUnavailable, TooManySubmissions
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.submission import Prepared, Submissions
from tideq.queue_core.submit_batcher import MAX_BYTES, MAX_TASKS, SubmitBatcher
from tideq.queue_core.task import NewTask, Submitted
from tideq.queue_core.task_id import TaskIds


async def submitted(kit: Kit, *tasks: NewTask) -> list[Any]:
    """All in one turn of the loop; what each was answered, or the error that refused it."""
    return await asyncio.gather(*(kit.queue.submit(task) for task in tasks), return_exceptions=True)


async def call_sizes(kit: Kit) -> list[int]:
    """How many tasks each call made: each is an entry of the outbox: an instant, an epoch, a field a task."""
    return [len(fields) - 2 for _, fields in await kit.client.xrange(kit.keys.key("outbox"))]


def resize(**fields: Any) -> NewTask:
    return NewTask(task_type="resize", **fields)


async def test_the_first_goes_at_once_and_the_others_share_the_next_call(kit: Kit) -> None:
    answers = await submitted(kit, *[resize()] * 10)

    assert await call_sizes(kit) == [1, 9]
    assert len({answer.task_id for answer in answers}) == 10
    assert [answer.lane_position for answer in answers] == list(range(10))


async def test_clients_never_share_a_call(kit: Kit) -> None:
    await submitted(kit, *[resize(client_id="shop"), resize(client_id="crawler")] * 3)

    assert sorted(await call_sizes(kit)) == [1, 1, 2, 2]


async def test_a_conflict_refuses_its_own_task_and_no_other(kit: Kit) -> None:
    first, plain, second = await submitted(
        kit, resize(idempotency_key="k"), resize(), NewTask(task_type="crop", idempotency_key="k")
    )

    assert (first.is_new, plain.is_new) == (True, True)
    assert isinstance(second, IdempotencyConflict)
    assert second.task_id == first.task_id


async def test_the_same_key_twice_in_one_turn_is_one_task(kit: Kit) -> None:
    first, second = await submitted(kit, *[resize(idempotency_key="k")] * 2)

    assert (first.task_id, first.is_new, second.is_new) == (second.task_id, True, False)


async def test_an_invalid_task_is_refused_before_it_joins_others(kit: Kit) -> None:
    first, good, bad, other = await submitted(kit, resize(), resize(), resize(parameters="no bytes"), resize())

    assert isinstance(bad, InvalidTask)
    assert (first.is_new, good.is_new, other.is_new, await call_sizes(kit)) == (True, True, True, [1, 2])


async def test_whoever_leaves_before_the_call_submits_nothing(kit: Kit) -> None:
    first, leaving, staying = (asyncio.ensure_future(kit.queue.submit(resize())) for _ in range(3))
    await asyncio.sleep(0)
    leaving.cancel()

    assert (await first).is_new
    assert (await staying).is_new
    assert await call_sizes(kit) == [1, 1]


async def test_a_first_one_that_is_broken_off_leaves_the_others_their_call(kit: Kit) -> None:
    leaving, *staying = (asyncio.ensure_future(kit.queue.submit(resize())) for _ in range(3))
    await asyncio.sleep(0)
    leaving.cancel()

    assert all(answer.is_new for answer in await asyncio.gather(*staying))


async def test_a_call_has_a_bounded_number_of_tasks(kit: Kit) -> None:
    await submitted(kit, *[resize()] * (2 * MAX_TASKS + 2))

    assert await call_sizes(kit) == [1, MAX_TASKS, MAX_TASKS, 1]


async def test_a_large_task_goes_alone(kit: Kit) -> None:
    large = b'{"a": "%s"}' % (b"x" * (MAX_BYTES - 9))

    await submitted(kit, resize(), resize(parameters=large), resize(), resize())

    assert await call_sizes(kit) == [1, 1, 2]


class TestAtALimit:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        admission = Admission(soft_depth=3, high_only_depth=3, max_depth=3)
        return QueueSettings(admission=admission)

    async def test_as_many_are_taken_as_there_is_room_for(self, kit: Kit) -> None:
        answers = await submitted(kit, *[resize()] * 5)

        assert [type(answer) for answer in answers] == [Submitted] * 3 + [QueueFull] * 2


class TestWithARate:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(admission=msgspec.structs.replace(Admission(), client_rate_per_second=0.5, client_burst=4))

    async def test_the_bucket_is_spent_to_its_end_and_no_further(self, kit: Kit) -> None:
        answers = await submitted(kit, *[resize()] * 6)

        assert [type(answer) for answer in answers] == [Submitted] * 4 + [TooManySubmissions] * 2


async def test_a_call_whose_end_is_unknown_is_not_repeated() -> None:
    calls: list[int] = []

    async def lose(_client_id: str, tasks: Sequence[Prepared]) -> list[Submitted]:
        calls.append(len(tasks))
        raise StoreUnavailable("the answer never came")

    gathering, submissions = SubmitBatcher(lose), Submissions(QueueSettings(), TaskIds())
    tasks = submissions.prepare([resize()] * 3)
    answers = await asyncio.gather(*(gathering.submit("shop", task) for task in tasks), return_exceptions=True)

    assert calls == [1, 2]
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3


async def test_positions_are_told_rightly_where_tasks_of_one_instant_lie_between_each_other(kit: Kit) -> None:
    """Their scores are equal, so their order is that of their ids."""
    await kit.clock.stop(time.time_ns() // 1_000_000)
    lowest, low, high, highest = (f"01a1e2cc-e046-749a-8653-00ecf330ac9{digit}" for digit in range(4))

    await kit.queue.submit_many([resize(task_id=low), resize(task_id=highest)])
    between = await kit.queue.submit_many([resize(task_id=lowest), resize(task_id=high)], include_position=True)
    backwards = [resize(task_id=each) for each in (low.replace("e046", "e045"), lowest.replace("e046", "e045"))]
    before = await kit.queue.submit_many(backwards, include_position=True)

    assert [each.lane_position for each in between] == [0, 2]
    assert [each.lane_position for each in before] == [1, 0]
