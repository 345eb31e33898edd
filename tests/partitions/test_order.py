"""Claims over several partitions: exact order, repetition, withdrawal, and what each claim leaves alone."""

import asyncio
import itertools
import random
from collections import Counter

import pytest

from tests.kit import Kit
from tideq.queue_core.task import NewTask
from tideq.queue_core.task_id import partition_of

PRIORITIES = ("high", "medium", "low")


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (8,)


async def submit_mixed(kit: Kit, count: int) -> list[str]:
    """Submitted one by one, so that they spread over all partitions; returned in the order they should run."""
    chance = random.Random(count)
    ranked: list[tuple[int, str]] = []
    for _ in range(count):
        task = NewTask(
            task_type=chance.choice(("resize", "crawl", "mail")),
            priority=chance.choice(PRIORITIES),
            head_start_ms=chance.randrange(0, 50_000),
        )
        answer = await kit.queue.submit(task)
        assert answer.rank is not None
        ranked.append((answer.rank, answer.task_id))
    return [task_id for _, task_id in sorted(ranked)]


@pytest.mark.parametrize("sizes", [(1,), (2, 5, 1), (50,), (7, 200)])
async def test_claims_of_an_idle_worker_follow_the_global_order(kit: Kit, sizes: tuple[int, ...]) -> None:
    expected = await submit_mixed(kit, 120)
    await kit.worker(capacity=1_000)
    assert len(set(map(partition_of, expected))) == 8

    taken: list[str] = []
    for size in itertools.cycle(sizes):
        claim = await kit.queue.claim("w1", size)
        if not claim.tasks:
            break
        taken += [task.task_id for task in claim.tasks]

    assert taken == expected


async def test_a_batch_that_lies_in_one_partition_is_claimed_whole(kit: Kit) -> None:
    """More than any first look tells of: the claim looks again."""
    answers = await kit.queue.submit_many([NewTask(task_type="resize")] * 300)
    await kit.worker(capacity=1_000)

    claim = await kit.queue.claim("w1", 250)

    assert [task.task_id for task in claim.tasks] == [answer.task_id for answer in answers[:250]]


async def test_a_partition_with_more_of_the_best_than_it_told_of_is_looked_at_again(kit: Kit) -> None:
    await kit.queue.submit_many([NewTask(task_type="resize", priority="high")] * 60)
    for _ in range(40):
        await kit.submit(priority="low")
    await kit.worker(capacity=1_000)

    claim = await kit.queue.claim("w1", 40)

    priorities = Counter(
        task.priority for task in await kit.queue.read_many([each.task_id for each in claim.tasks]) if task
    )
    assert priorities == {"high": 40}


async def test_submissions_spread_over_all_partitions(kit: Kit) -> None:
    for _ in range(160):
        await kit.submit()

    depths = [(await part.insight.stats()).total_depth for part in kit.engine.parts]
    assert sum(depths) == 160
    assert min(depths) > 0


async def test_every_task_of_a_claim_has_a_lease_of_its_own(kit: Kit) -> None:
    await submit_mixed(kit, 40)
    await kit.worker(capacity=100)

    claim = await kit.queue.claim("w1", 40)

    assert len({task.lease for task in claim.tasks}) == 40


async def test_a_poll_repeated_returns_the_same_tasks_wherever_they_came_from(kit: Kit) -> None:
    await submit_mixed(kit, 40)
    await kit.worker(capacity=100)
    first = await kit.queue.claim("w1", 20, poll_id="p")

    again = await kit.queue.claim("w1", 20, poll_id="p")

    assert again.tasks == first.tasks
    assert again.is_repeat
    assert again.answer > first.answer
    assert (await kit.insight.stats()).by_state["assigned"] == 20


async def test_an_answer_that_took_several_looks_is_repeated_whole(kit: Kit) -> None:
    await kit.queue.submit_many([NewTask(task_type="resize")] * 300)
    await kit.worker(capacity=1_000)
    first = await kit.queue.claim("w1", 250, poll_id="p")

    again = await kit.queue.claim("w1", 250, poll_id="p")

    assert len(first.tasks) == 250
    assert again.tasks == first.tasks


async def test_a_withdrawn_answer_goes_back_in_all_partitions(kit: Kit) -> None:
    expected = await submit_mixed(kit, 30)
    await kit.worker(capacity=100)
    claim = await kit.queue.claim("w1", 30, poll_id="p")

    assert await kit.queue.undo_claim("w1", "p", claim.answer) == 30

    again = await kit.queue.claim("w1", 30)
    assert [task.task_id for task in again.tasks] == expected


async def test_withdrawing_an_answer_that_was_repeated_since_changes_nothing(kit: Kit) -> None:
    await submit_mixed(kit, 30)
    await kit.worker(capacity=100)
    first = await kit.queue.claim("w1", 30, poll_id="p")
    await kit.queue.claim("w1", 30, poll_id="p")

    assert await kit.queue.undo_claim("w1", "p", first.answer) == 0


async def test_what_falls_due_anywhere_is_recovered_by_a_claim(kit: Kit) -> None:
    expected = await submit_mixed(kit, 24)
    await kit.worker("gone", capacity=100)
    await kit.queue.claim("gone", 24)
    await kit.clock.advance(30_001)
    await kit.worker(capacity=100)

    claim = await kit.queue.claim("w1", 24)

    assert [task.task_id for task in claim.tasks] == expected


async def test_explain_tells_the_place_among_all_partitions(kit: Kit) -> None:
    expected = await submit_mixed(kit, 40)

    places = [(await kit.insight.explain(task_id)).global_position for task_id in expected]

    assert places == list(range(40))


async def test_workers_that_claim_at_once_get_every_task_once(kit: Kit) -> None:
    expected = await submit_mixed(kit, 200)
    for number in range(4):
        await kit.worker(f"w{number}", capacity=1_000)

    async def drain(worker_id: str) -> list[str]:
        taken: list[str] = []
        while claim := (await kit.queue.claim(worker_id, 7)).tasks:
            taken += [task.task_id for task in claim]
        return taken

    taken = await asyncio.gather(*(drain(f"w{number}") for number in range(4)))

    counts = Counter(itertools.chain(*taken))
    assert set(counts.values()) == {1}
    assert set(counts) == set(expected)


class TestManyPartitions:
    @pytest.fixture
    def partitions(self) -> tuple[int, ...]:
        return (20,)

    async def test_every_task_is_found_and_the_order_is_nearly_kept(self, kit: Kit) -> None:
        expected = await submit_mixed(kit, 200)
        await kit.worker(capacity=1_000)

        taken: list[str] = []
        while claim := (await kit.queue.claim("w1", 10)).tasks:
            taken += [task.task_id for task in claim]

        assert sorted(taken) == sorted(expected)
        errors = [abs(expected.index(task_id) - place) for place, task_id in enumerate(taken)]
        assert sum(errors) / len(errors) < 60
