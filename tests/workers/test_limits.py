"""How many at once and how many a second: on the worker for each process, on the service for all of them."""

import itertools
from collections.abc import Sequence

from tests.api.bench import Bench
from tests.api.running import Running
from tests.kit import Kit
from tests.workers.waiting import all_ended, submitted
from tests.workers.workshop import Workshop

RATE = 10
"""A second: of `tick` on each worker, of `limited` on the service."""


async def test_no_more_of_a_type_run_at_once_than_its_handler_allows(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    shop.hire(service.url)

    tasks = await all_ended(bench, await submitted(bench, [{"task_type": "crowd"}] * 60))

    assert {task["status"] for task in tasks} == {"completed"}
    assert max(task["result"] for task in tasks) == 3


async def test_a_rate_holds_for_each_worker_or_for_all_depending_on_where_it_is_set(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "limited", "tasks_per_second": RATE})
    ids = await submitted(bench, [{"task_type": "tick"}] * 80 + [{"task_type": "limited"}] * 40)
    hands = [shop.hire(service.url) for _ in range(2)]

    tasks = await all_ended(bench, ids)

    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "limited"})
    types = {task["task_id"]: task["task_type"] for task in tasks}
    lines = shop.ledger.lines("start")
    together = [line["at"] for line in lines if types[line["task_id"]] == "limited"]
    assert_about_the_rate(together)
    ticks = [line for line in lines if types[line["task_id"]] == "tick"]
    each = [[line["at"] for line in ticks if line["pid"] == hand.pid] for hand in hands]
    for instants in each:
        assert_about_the_rate(instants)
    assert sum(map(len, each)) == 80


def assert_about_the_rate(instants: Sequence[float]) -> None:
    """Never more than a burst of one second's worth above it; and not far below it, on a busy machine either."""
    at = sorted(instants)
    assert len(at) >= 2 * RATE
    for (i, first), (j, last) in itertools.combinations(enumerate(at), 2):
        assert j - i + 1 <= RATE * (last - first) * 1.1 + RATE + 2
    assert len(at) - RATE >= RATE * (at[-1] - at[0]) * 0.4


async def test_a_limit_of_the_service_on_how_many_run_holds_across_workers(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "short", "max_executing": 2})
    ids = await submitted(bench, [{"task_type": "short", "parameters": {"seconds": 0.05}}] * 30)
    for _ in range(2):
        shop.hire(service.url)

    await all_ended(bench, ids)

    await bench.call("PUT", "/api/v1/queue/limits", {"task_type": "short"})
    steps = sorted(
        (line["at"], step) for event, step in (("start", 1), ("end", -1)) for line in shop.ledger.lines(event)
    )
    assert max(itertools.accumulate(step for _, step in steps)) == 2
