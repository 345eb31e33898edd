"""A worker's circuits count its results wherever in the queue's partitions they fell."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tests.contract.situations import held
from tests.kit import Kit, make_kit
from tests.partitions.test_limits import refuse_calls
from tests.stores import StoreUnderTest
from tideq.queue_core.attempts import AttemptVerb
from tideq.queue_core.circuits import CircuitState
from tideq.queue_core.engine import Engine
from tideq.queue_core.partitioning.claim_merge import ClaimMerger
from tideq.queue_core.partitioning.partition_sampler import home_of
from tideq.queue_core.task import Claim, ClaimedTask, NewTask
from tideq.queue_core.task_id import partition_of
from tideq.queue_core.worker_calls import Member

OPEN_MS = 60_000


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (4,)


async def submit_in(kit: Kit, partition: int, task_type: str = "resize") -> None:
    await kit.engine.parts[partition].queue.submit_many([NewTask(task_type=task_type, max_retries=0)])


async def attempts_in(
    kit: Kit, *partitions: int, verdict: AttemptVerb | None = None, task_type: str = "resize"
) -> None:
    """One after the other, each of a task in one of the partitions."""
    for partition in partitions:
        await submit_in(kit, partition, task_type)
        await end(kit, await kit.claimed(), verdict)


async def end(kit: Kit, task: ClaimedTask, verdict: AttemptVerb | None = None) -> None:
    await kit.start(task)
    await (kit.fail(task, verdict=verdict) if verdict else kit.complete(task))


async def given(kit: Kit, wanted: int = 9) -> list[ClaimedTask]:
    return list((await kit.queue.claim("w1", wanted)).tasks)


async def member(kit: Kit) -> Member:
    return (await kit.fleet.members()).members[0]


@pytest.fixture
async def shut(kit: Kit) -> Kit:
    await kit.worker("w1", capacity=20)
    await attempts_in(kit, 0, 1, 2, 3, 0, verdict="retry")
    assert not await given(kit)
    return kit


async def test_five_failures_open_a_circuit_wherever_they_fell(shut: Kit) -> None:
    for partition in range(4):
        await submit_in(shut, partition)
    await submit_in(shut, 3, "crawl")

    claim = await shut.queue.claim("w1", 9)

    assert [task.definition.task_type for task in claim.tasks] == ["crawl"]
    assert claim.circuits == (await member(shut)).circuits
    assert [each.task_type for each in claim.circuits] == ["resize"]
    stats = await shut.insight.stats()
    assert (stats.workers.open_circuits, stats.totals["circuits_opened"]) == (1, 1)


async def test_a_claim_that_finds_nothing_says_when_the_trial_begins(shut: Kit) -> None:
    await submit_in(shut, 2)

    claim = await shut.queue.claim("w1", 1)

    assert claim.retry_at_ms is not None
    assert claim.retry_at_ms <= (claim.circuits[0].until_ms or 0)


async def test_good_results_elsewhere_count(kit: Kit) -> None:
    await kit.worker("w1", capacity=20)

    await attempts_in(kit, *[1] * 6)
    await attempts_in(kit, *[0] * 6, verdict="retry")
    await submit_in(kit, 0)

    assert await given(kit), "half of all is not more than half"


async def test_three_trials_are_for_all_partitions_together(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)
    for partition in range(4):
        await submit_in(shut, partition)
        await submit_in(shut, partition)

    trials = await given(shut)

    assert len(trials) == 3
    assert not await given(shut)
    await end(shut, trials[0])
    assert not await given(shut), "two in hand and one that ended well"


async def test_explain_counts_the_trials_of_all_partitions(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)
    for partition in range(4):
        await submit_in(shut, partition)
        await submit_in(shut, partition)
    waiting = (await shut.queue.submit(NewTask(task_type="resize"))).task_id

    told = [(await shut.insight.explain(waiting)).trials_left]
    trials = await given(shut, 2)
    told.append((await shut.insight.explain(waiting)).trials_left)
    trials += await given(shut)
    told.append((await shut.insight.explain(waiting)).trials_left)
    await end(shut, trials[0])
    told.append((await shut.insight.explain(waiting)).trials_left)

    assert len({partition_of(task.task_id) for task in trials}) > 1
    assert told == [(3,), (1,), (0,), (0,)]
    assert (await shut.insight.explain(waiting)).serving_worker_count == 0
    await end(shut, trials[1], "retry")
    assert (await shut.insight.explain(waiting)).blocked_until_ms


async def test_three_that_end_well_anywhere_close_it_everywhere(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)

    await attempts_in(shut, 1, 2, 3)
    for partition in range(4):
        await submit_in(shut, partition)

    assert len({partition_of(task.task_id) for task in await given(shut)}) == 4
    assert (await member(shut)).circuits == ()


async def test_one_bad_trial_opens_it_everywhere_again(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)

    await attempts_in(shut, 1)
    assert (await shut.queue.claim("w1", 1)).circuits == (CircuitState("resize", None),)
    await attempts_in(shut, 2, verdict="retry")
    for partition in range(4):
        await submit_in(shut, partition)

    assert not await given(shut)
    assert all([(await part.fleet.members()).members[0].circuit == "open" for part in shut.engine.parts])


async def test_claims_of_one_worker_at_one_instant_give_it_three_trials_together(
    shut: Kit, store: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One looks while another, of a process of its own, has two of its three trials and is about to get the third."""
    client = store.client()
    other = await make_kit(client, shut.settings.queue_name, shut.settings)
    await shut.clock.advance(OPEN_MS)
    for partition in range(4):
        await submit_in(shut, partition)
        await submit_in(shut, partition, "crawl")
    has_two, may_end, claimed = asyncio.Event(), asyncio.Event(), list[int]()
    for number, part in enumerate(shut.engine.parts):
        stopping = _stopping_before_the_third(number, part, claimed, has_two, may_end)
        monkeypatch.setattr(part.partition, "claim", stopping)

    first = asyncio.create_task(given(shut))
    await has_two.wait()
    await shut.engine.parts[3].queue.submit_many([NewTask(task_type="resize", priority="high")])
    second = await given(other)
    may_end.set()
    tasks = [*await first, *second, *await given(other)]

    types = Counter(task.definition.task_type for task in tasks)
    assert types == {"resize": 3, "crawl": 4}, "and what is healthy waits for no turn"
    await client.aclose()


def _stopping_before_the_third(
    number: int, part: Engine, claimed: list[int], has_two: asyncio.Event, may_end: asyncio.Event
) -> Callable[..., Awaitable[Claim]]:
    claim_here = part.partition.claim

    async def claim(*arguments: Any) -> Claim:
        if number == 2 and not may_end.is_set():
            while len(claimed) < 2:
                await asyncio.sleep(0)
            has_two.set()
            await may_end.wait()
        got = await claim_here(*arguments)
        claimed.append(number)
        return got

    return claim


async def test_a_claim_that_waits_for_its_turn_says_when_to_come_again_and_a_turn_ends_by_itself(shut: Kit) -> None:
    await shut.clock.advance(OPEN_MS)
    for partition in range(4):
        await submit_in(shut, partition)
    home = shut.engine.parts[home_of("w1", 4)].partition
    assert await home.trial_turn("w1", "dead")

    waiting = await shut.queue.claim("w1", 9)
    await shut.clock.advance(15_001)

    assert waiting.tasks == ()
    assert waiting.retry_at_ms is not None
    assert 0 < waiting.retry_at_ms - waiting.now_ms <= 250
    assert len(await given(shut)) == 3
    assert await home.trial_turn("w1", "next"), "who has given its trials gives its turn back"


async def test_a_claim_that_slept_on_its_turn_gives_no_trials(shut: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    await shut.clock.advance(OPEN_MS)
    for partition in range(4):
        await submit_in(shut, partition)
    claim_shares = ClaimMerger._claim_shares  # pyright: ignore[reportPrivateUsage]

    async def sleepy(self: ClaimMerger, *arguments: Any) -> Any:
        await shut.clock.advance(5_001)
        return await claim_shares(self, *arguments)

    monkeypatch.setattr(ClaimMerger, "_claim_shares", sleepy)

    assert not await given(shut)


async def test_trials_are_given_while_the_workers_home_is_away(shut: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    await shut.clock.advance(OPEN_MS)
    for partition in range(4):
        await submit_in(shut, partition)
        await submit_in(shut, partition)
    refuse_calls(monkeypatch, shut.engine.parts[home_of("w1", 4)].scripts, lambda _: True)

    assert len(await given(shut)) == 3


@pytest.mark.parametrize("partitions", [(12,), (32,)], ids=["12", "32"])
class TestManyPartitions:
    """More than a claim looks at, without a `poll_id` that would make it look at all."""

    @pytest.fixture
    async def other(self, kit: Kit, store: StoreUnderTest) -> AsyncIterator[Kit]:
        """The process that takes the results; claims go through another. No claim looks further for want of tasks."""
        for part in kit.engine.parts:
            await part.queue.submit_many([NewTask(task_type="resize", max_retries=0)] * 20)
        for number in range(10):
            await kit.worker(f"w{number}", capacity=100)
        client = store.client()
        yield await make_kit(client, kit.settings.queue_name, kit.settings)
        await client.aclose()

    async def test_the_fifth_failure_opens_a_circuit_wherever_they_fell(self, kit: Kit, other: Kit) -> None:
        for worker_id in (f"w{number}" for number in range(10)):
            tasks = (await kit.queue.claim(worker_id, 5)).tasks
            await other.attempts.start(worker_id, held(*tasks))
            for task in tasks:
                await other.fail(task, worker_id, verdict="retry")

            assert not (await kit.queue.claim(worker_id, 1)).tasks

    async def test_three_trials_are_for_all_partitions_together(self, kit: Kit, other: Kit) -> None:
        for task in (await kit.queue.claim("w1", 5)).tasks:
            await end(other, task, "retry")
        assert not await given(kit)
        await kit.clock.advance(OPEN_MS)

        trials = [task for _ in range(12) for task in await given(kit, 1)]

        assert len(trials) == 3
        for task in trials:
            await end(other, task)
        assert len(await given(kit)) == 9
