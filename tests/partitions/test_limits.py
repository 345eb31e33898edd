"""Pauses are in force in all partitions, limits are divided among them."""

import pytest

from tests.kit import Kit
from tideq.queue_core.engine.controls import Limits


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (4,)


async def fill(kit: Kit, count: int = 40, task_type: str = "resize") -> None:
    for _ in range(count):
        await kit.submit(task_type)
    depths = [(await part.insight.backlog([task_type])).ready for part in kit.engine.parts]
    assert min(depths) > 0


async def claimed_count(kit: Kit, wanted: int = 100) -> int:
    return len((await kit.queue.claim("w1", wanted)).tasks)


async def test_a_pause_holds_everywhere_and_ends_everywhere(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.pause()

    assert await claimed_count(kit) == 0

    await kit.controls.resume()
    assert await claimed_count(kit) == 40


async def test_slots_are_divided_and_add_up(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=10)

    assert await claimed_count(kit) == 10
    assert await claimed_count(kit) == 0
    shares = [(await part.controls.rules())["max:resize"] for part in kit.engine.parts]
    assert shares == ["3", "3", "2", "2"]
    assert (await kit.insight.stats()).controls["resize"].limits == Limits(None, 10)


async def test_fewer_slots_than_partitions_still_let_the_others_work(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=2)

    assert await claimed_count(kit) == 2
    assert await claimed_count(kit) == 0


async def test_a_rate_is_divided_and_adds_up(kit: Kit) -> None:
    await fill(kit, 80)
    await kit.worker(capacity=100)
    before = await kit.insight.stats()
    await kit.controls.limit("resize", tasks_per_second=8)
    first = await kit.queue.claim("w1", 100)

    await kit.clock.advance(1_000)

    second = await kit.queue.claim("w1", 100)
    taken = len(first.tasks) + len(second.tasks)
    most = 8 + 8 * (second.now_ms - before.now_ms) / 1000 + 4
    assert (len(first.tasks) >= 8, 16 <= taken <= most) == (True, True)
    assert (await kit.insight.stats()).controls["resize"].limits == Limits(8.0, None)
    assert {(await part.controls.rules())["rate:resize"] for part in kit.engine.parts} == {"2.0"}


async def test_a_lifted_limit_is_lifted_everywhere(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=100)
    await kit.controls.limit("resize", max_executing=4)
    await kit.controls.limit("resize")

    assert await claimed_count(kit) == 40
    assert [await part.controls.rules() for part in kit.engine.parts] == [{}] * 4


async def test_explain_tells_the_limit_as_it_was_set(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.controls.limit("resize", tasks_per_second=8, max_executing=10)

    assert (await kit.insight.explain(task_id)).type_control.limits == Limits(8.0, 10)


async def test_a_worker_is_counted_once_and_what_it_holds_is_added_up(kit: Kit) -> None:
    await fill(kit)
    await kit.worker(capacity=50)
    await kit.queue.claim("w1", 30)

    workers = (await kit.insight.stats()).workers
    assert (workers.active, workers.total_capacity, workers.used_capacity) == (1, 50, 30)
    (member,) = (await kit.fleet.members()).members
    assert member.held_count == 30
    assert await kit.fleet.dismiss("w1") == 30
    assert (await kit.fleet.members()).members == ()
