"""Claims come in the order of `offset − age` at the instant they are made: in a lane, and over all lanes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import Kit
from tests.order.bench import Bench, examples
from tests.order.line import Line
from tests.order.scenes import CAPABILITIES, Scene, join, play, scenes
from tideq.queue_core.task import NewTask, WorkerDeclaration

FEW = ("crawl", "mail", "resize")
MANY = tuple(f"type-{number:03}" for number in range(150))

ONE_LANE_EACH = [
    WorkerDeclaration(worker_id=f"{task_type}{len(having)}", task_types=(task_type,), capabilities=having)
    for task_type in FEW
    for having in ((), ("gpu",), CAPABILITIES)
]
"""The first of each type serves one lane, the second two, the third all three of its type."""

ANYTHING = [WorkerDeclaration(worker_id="all", capabilities=CAPABILITIES)]
PAGED = [
    WorkerDeclaration(worker_id="any"),
    WorkerDeclaration(worker_id="some", task_types=MANY[::2], capabilities=("gpu",)),
    WorkerDeclaration(worker_id="all", capabilities=CAPABILITIES),
]

one_by_one_and_in_batches = pytest.mark.parametrize("wanted", [1, 7])


@one_by_one_and_in_batches
@examples(40)
@given(scene=scenes(FEW, len(ONE_LANE_EACH)))
def test_workers_of_one_type_are_served_by_offset_minus_age(bench: Bench, wanted: int, scene: Scene) -> None:
    async def example(kit: Kit) -> None:
        await play(kit, ONE_LANE_EACH, wanted, scene)

    bench.run(example)


@one_by_one_and_in_batches
@examples(50)
@given(scene=scenes(FEW, 1))
def test_a_worker_of_any_type_is_served_by_offset_minus_age_over_all_lanes(
    bench: Bench, wanted: int, scene: Scene
) -> None:
    async def example(kit: Kit) -> None:
        await play(kit, ANYTHING, wanted, scene)

    bench.run(example)


@pytest.mark.parametrize("wanted", [1, 7, 200])
@examples(7)
@given(scene=scenes(MANY, len(PAGED)), seed=st.integers(0, 2**32))
def test_the_order_holds_over_more_lanes_than_a_page(bench: Bench, wanted: int, scene: Scene, seed: int) -> None:
    async def example(kit: Kit) -> None:
        line = Line()
        await _crowd(kit, line, random.Random(seed))
        await play(kit, PAGED, wanted, scene, line)
        serving = await kit.client.hgetall(kit.keys.key("served_lanes"))
        assert len(serving) == len(PAGED)
        assert all(b" map " in kept for kept in serving.values())

    bench.run(example)


@pytest.mark.parametrize("lane_number", [0, 62, 63, 64, 127, 128])
async def test_a_lane_does_not_run_ahead_of_lanes_on_the_next_page(kit: Kit, lane_number: int) -> None:
    """All lanes hold one task, in order, but one that also holds the last of all. Pages have 64 lanes."""
    line = Line()
    all_lanes = [NewTask(task_type=name, head_start_ms=-number) for number, name in enumerate(MANY)]
    await join(kit, [*all_lanes, NewTask(task_type=MANY[lane_number], head_start_ms=-len(MANY))], line)

    await play(kit, ANYTHING, 200, [], line)


async def _crowd(kit: Kit, line: Line, luck: random.Random) -> None:
    """Two tasks a lane in any order, and the foremost eighty called off, which leaves a page of lanes looking better
    to the claims than they are."""
    crowd = [NewTask(task_type=name, head_start_ms=luck.randrange(10**8)) for name in MANY * 2]
    await join(kit, crowd, line)
    foremost = sorted(line.waiting.values(), key=lambda task: task.offset_ms)[:80]
    await kit.queue.cancel_many([task.task_id for task in foremost])
    for task in foremost:
        del line.waiting[task.task_id]
