"""Workers killed in the middle of their work: nothing is lost, and nothing is accepted twice."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from tests.api.bench import Bench
from tests.api.running import Running, serving
from tests.kit import Kit
from tests.races.outbox import Event, audit
from tests.workers.conftest import Site
from tests.workers.waiting import live_count, submitted, until
from tests.workers.workshop import Hand, Workshop
from tideq.queue_core.task import Task

TASKS = 2_000
WORKERS = 3
KILLS = 6
LOOKED_AT = 100
CONCURRENCY = 8
Stories = dict[str, list[Event]]


@pytest.fixture
def site(own_site: Site) -> Site:
    """Many workers may be lost over one task here: which die is left to chance."""
    return Site(
        {**own_site.settings, "TIDEQ_MAX_WORKER_LOSSES": "50", "TIDEQ_MAX_UNSTARTED_CLAIMS": "50"}, own_site.folder
    )


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
    hands = [_hire(service, shop) for _ in range(WORKERS)]

    for kill in range(KILLS):
        await until(lambda at=(kill + 1) * TASKS // (KILLS + 2): shop.ledger.count("end") >= at)
        await _replace_one(service, shop, hands)
    await until(lambda: _is_all_done(bench))

    tasks = [task for start in range(0, TASKS, 500) for task in await kit.queue.read_many(ids[start : start + 500])]
    stories = await audit(kit)
    _assert_each_done_once(tasks, stories, shop)
    _assert_costs_are_as_the_ledger_has_them(tasks, stories, shop)
    for task in random.sample(tasks, LOOKED_AT):
        await _assert_told_alike(bench, task)


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


def _assert_each_done_once(tasks: list[Task | None], stories: Stories, shop: Workshop) -> None:
    """The store's own story has one ending each, as `audit` has seen; its result is one that a handler gave."""
    assert Counter(task and task.state for task in tasks) == {"completed": TASKS}
    done = {(task.task_id, task.result) for task in tasks if task}
    assert set(stories) == {task_id for task_id, _ in done}
    assert done <= {(line["task_id"], b'"%d-%d"' % (line["pid"], line["attempt"])) for line in shop.ledger.lines("end")}
    # Each attempt that the ledger has was begun once: no lease was given out twice.
    assert set(shop.ledger.attempts("start").values()) == {1}


def _assert_costs_are_as_the_ledger_has_them(tasks: list[Task | None], stories: Stories, shop: Workshop) -> None:
    """A started attempt whose worker died is a loss, one that was not started a delivery; neither is a retry."""
    begun = Counter(task_id for task_id, _ in shop.ledger.attempts("start"))
    lost = 0
    for task in filter(None, tasks):
        seen = Counter(event.reason for event in stories[task.task_id])
        assert (task.losses, task.deliveries) == (seen["worker_lost"], seen["assignment_lapsed"])
        assert task.retry_count == seen["error"] == seen["timed_out"] == 0
        assert task.attempt == seen["started"] == task.losses + _taken_back(stories[task.task_id]) + 1
        # What the service counts as started and the ledger has not, died between the two.
        assert 1 <= begun[task.task_id] <= task.attempt
        lost += task.losses
    assert 1 <= lost <= KILLS * CONCURRENCY


def _taken_back(story: list[Event]) -> int:
    """Attempts that were started as they were handed to a worker that died before it had the whole answer."""
    return sum(before.state == "executing" and after.reason == "released" for before, after in pairwise(story))


async def _assert_told_alike(bench: Bench, task: Task | None) -> None:
    assert task is not None
    told = await bench.read(task.task_id)
    assert (told["status"], told["version"], told["attempt"]) == (task.state, task.version, task.attempt)
    assert msgspec.json.encode(told["result"]) == task.result
