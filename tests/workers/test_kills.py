"""Workers killed in the middle of their work: nothing is lost, and nothing is accepted twice."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.api.bench import Bench, Json
from tests.api.running import Running, serving
from tests.kit import Kit
from tests.races.outbox import Event, audit
from tests.workers.conftest import Site
from tests.workers.waiting import all_ended, live_count, submitted, until
from tests.workers.workshop import Hand, Workshop

TASKS = 2_000
WORKERS = 3
KILLS = 10
CONCURRENCY = 8


@pytest.fixture
def site(own_site: Site) -> Site:
    """Many workers may be lost over one task here: which die is left to chance."""
    return Site({**own_site.settings, "TIDEQ_MAX_LOSSES": "50", "TIDEQ_MAX_DELIVERIES": "50"}, own_site.folder)


@pytest.fixture
def service(site: Site) -> Iterator[Running]:
    with serving(site.settings, site.folder) as running:
        yield running


async def test_workers_killed_at_random_lose_nothing_and_no_result_is_accepted_twice(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    kinds = ("short", "short_async")
    ids = [
        task_id
        for start in range(0, TASKS, 1_000)
        for task_id in await submitted(bench, [{"task_type": kinds[i % 2]} for i in range(start, start + 1_000)])
    ]
    import time; T=time.time(); print("submitted")
    hands = [_hire(service, shop) for _ in range(WORKERS)]

    for kill in range(KILLS):
        await until(lambda at=(kill + 1) * TASKS // (KILLS + 2): shop.ledger.count("end") >= at)
        print("kill", kill, time.time()-T)
        await _replace_one(service, shop, hands)
    await until(lambda: _is_all_done(bench))

    print("all done", time.time()-T)
    tasks = await all_ended(bench, ids)
    print("read", time.time()-T)
    stories = await audit(kit)
    print("audited", time.time()-T)
    _assert_each_done_once(tasks, stories, shop)
    _assert_costs_are_as_the_ledger_has_them(tasks, stories, shop)


def _hire(service: Running, shop: Workshop) -> Hand:
    return shop.hire(service.url, "--concurrency", str(CONCURRENCY))


async def _replace_one(service: Running, shop: Workshop, hands: list[Hand]) -> None:
    """Any of those that have begun something, at whatever it does just then."""

    def working() -> list[int]:
        return [i for i, hand in enumerate(hands) if shop.ledger.count("start", pid=hand.pid)]

    await until(working)
    number = random.choice(working())
    hands[number].kill()
    hands[number] = _hire(service, shop)


async def _is_all_done(bench: Bench) -> bool:
    return await live_count(bench) == 0


def _assert_each_done_once(tasks: list[Json], stories: dict[str, list[Event]], shop: Workshop) -> None:
    """The store's own story has one ending each; the result the API shows is one that a handler gave."""
    assert Counter(task["status"] for task in tasks) == {"completed": TASKS}
    assert set(stories) == {task["task_id"] for task in tasks}
    finished = {(line["task_id"], f"{line['pid']}-{line['attempt']}") for line in shop.ledger.lines("end")}
    assert {(task["task_id"], task["result"]) for task in tasks} <= finished
    # Each attempt that the ledger has was begun once: no lease was given out twice.
    assert set(shop.ledger.attempts("start").values()) == {1}


def _assert_costs_are_as_the_ledger_has_them(
    tasks: list[Json], stories: dict[str, list[Event]], shop: Workshop
) -> None:
    """A started attempt whose worker died is a loss, one that was not started a delivery; neither is a retry."""
    reasons = {task_id: Counter(event.reason for event in story) for task_id, story in stories.items()}
    for task in tasks:
        seen = reasons[task["task_id"]]
        assert (task["losses"], task["deliveries"]) == (seen["worker_lost"], seen["assignment_lapsed"])
        assert task["retry_count"] == seen["error"] == seen["timed_out"] == 0
        assert task["attempt"] == seen["started"] == task["losses"] + 1
    begun = Counter(task_id for task_id, _ in shop.ledger.attempts("start"))
    # What the service counts as started and the ledger has not, died between the two.
    assert all(begun[task["task_id"]] <= task["attempt"] for task in tasks)
    lost = sum(task["losses"] for task in tasks)
    assert 1 <= lost <= KILLS * CONCURRENCY
