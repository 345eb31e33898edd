"""How many at once and how many a second: on the worker for each process, on the service for all of them."""

import itertools
from collections.abc import Iterator, Sequence

import pytest

from tests.api.bench import Bench
from tests.api.running import Running
from tests.kit import Kit
from tests.workers.waiting import all_ended, submitted, until
from tests.workers.workshop import Workshop, workshop

RATE = 10
"""A second: of `tick` on each worker, of `limited` on the service."""


@pytest.fixture(scope="module")
def shop(shared_service: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop(tmp_path_factory.mktemp("limits") / "shop") as shop:
        for _ in range(2):
            shop.hire(shared_service.url)
        yield shop


async def test_no_more_of_a_type_run_at_once_in_a_process_than_its_handler_allows(
    bench: Bench, kit: Kit, shop: Workshop
) -> None:
    tasks = await all_ended(bench, await submitted(bench, [{"task_type": "crowd"}] * 60))

    assert {task["status"] for task in tasks} == {"completed"}
    assert max(task["result"] for task in tasks) == 3


async def test_a_rate_holds_for_each_worker_or_for_all_depending_on_where_it_is_set(
    bench: Bench, kit: Kit, shop: Workshop
) -> None:
    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "limited", "tasks_per_second": RATE})
    await until(lambda: all(len(hand.events("worker registered")) == 3 for hand in shop.hands))
    ids = await submitted(bench, [{"task_type": "tick"}] * 80 + [{"task_type": "limited"}] * 40)

    tasks = await all_ended(bench, ids)

    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "limited"})
    types = {task["task_id"]: task["task_type"] for task in tasks}
    lines = [line for line in shop.ledger.lines("start") if line["task_id"] in types]
    together = [line["at"] for line in lines if types[line["task_id"]] == "limited"]
    assert_about_the_rate(together)
    ticks = [line for line in lines if types[line["task_id"]] == "tick"]
    each = [[line["at"] for line in ticks if line["pid"] == hand.pid] for hand in shop.hands]
    for instants in each:
        assert_about_the_rate(instants)
    assert sum(map(len, each)) == 80


def assert_about_the_rate(instants: Sequence[float]) -> None:
    """Above it by a burst of one second's worth, and what a busy machine begins late; never half of it or double."""
    seconds = max(instants) - min(instants)
    assert len(instants) >= 2 * RATE
    assert RATE * seconds * 0.5 <= len(instants) <= RATE * seconds * 1.2 + RATE * 1.5


async def test_a_limit_of_the_service_on_how_many_run_holds_across_workers(
    bench: Bench, kit: Kit, shop: Workshop
) -> None:
    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "short", "max_executing": 2})
    ids = await submitted(bench, [{"task_type": "short", "parameters": {"seconds": 0.05}}] * 30)

    await all_ended(bench, ids)

    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "short"})
    steps = sorted(
        (line["at"], step)
        for event, step in (("start", 1), ("end", -1))
        for line in shop.ledger.lines(event)
        if line["task_id"] in ids
    )
    assert max(itertools.accumulate(step for _, step in steps)) == 2
