"""Depth limits and clients' rates are the whole queue's, whatever partition a submission goes to."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.contract.situations import submit_count
from tests.kit import Kit, make_kit
from tests.partitions.test_limits import refuse_calls
from tests.stores import StoreUnderTest
from tideq.queue_core.errors import QueueFull, TooManySubmissions
from tideq.queue_core.settings import Admission, QueueSettings
from tideq.queue_core.task import NewTask


@pytest.fixture
def partitions() -> tuple[int, ...]:
    return (8,)


def admitting(**limits: Any) -> QueueSettings:
    return QueueSettings(admission=msgspec.structs.replace(Admission(), **limits))


@pytest.fixture
async def others(kit: Kit, store: StoreUnderTest) -> AsyncIterator[list[Kit]]:
    """The same queue as other processes have it."""
    clients = [store.client() for _ in range(4)]
    yield [await make_kit(client, kit.settings.queue_name, kit.settings) for client in clients]
    for client in clients:
        await client.aclose()


async def depth(kit: Kit) -> int:
    return (await kit.insight.stats()).total_depth


class TestDepth:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return admitting(soft_depth=1_000, high_only_depth=1_000, max_depth=1_000)

    async def test_a_batch_is_measured_by_the_depth_of_the_queue(self, kit: Kit) -> None:
        for _ in range(5):
            await submit_count(kit, 200)

        with pytest.raises(QueueFull) as refusal:
            await kit.submit()

        assert (refusal.value.depth, refusal.value.limit, await depth(kit)) == (1_000, 1_000, 1_000)

    async def test_many_processes_at_once_fill_the_queue_and_never_more(self, kit: Kit, others: list[Kit]) -> None:
        async def produce(other: Kit, size: int) -> None:
            for _ in range(1_200 // size):
                try:
                    await submit_count(other, size)
                except QueueFull:
                    await asyncio.sleep(0)

        await asyncio.gather(*(produce(other, size) for other, size in zip(others, (10, 25, 40, 60), strict=True)))

        assert 980 <= await depth(kit) <= 1_000

    async def test_room_of_a_claimed_task_is_room_again(self, kit: Kit) -> None:
        await submit_count(kit, 1_000)
        await kit.worker(capacity=10)
        await kit.queue.claim("w1", 10)

        await submit_count(kit, 10)

        with pytest.raises(QueueFull):
            await kit.submit()

    async def test_what_waits_in_a_partition_that_is_away_counts_for_processes_that_never_saw_it(
        self, kit: Kit, others: list[Kit], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where the queue was far from its limit when anybody last saw it."""
        for _ in range(4):
            await kit.engine.parts[3].queue.submit_many([NewTask(task_type="resize")] * 100)
        await kit.submit()
        refuse_calls(monkeypatch, others[0].engine.parts[3].scripts, lambda _: True)

        for _ in range(5):
            await submit_count(others[0], 100)

        assert await depth(kit) == 901, "of which one may have gone to the partition that is away, after it was read"
        with pytest.raises(QueueFull):
            await submit_count(others[0], 101)


class TestFarFromItsLimits:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return admitting(soft_depth=100_000, high_only_depth=100_000, max_depth=100_000)

    async def test_a_submission_costs_one_call(self, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
        await kit.submit()
        called: Counter[str] = Counter()
        for part in kit.engine.parts:
            call: Any = part.scripts.call

            def counting(name: str, /, *arguments: Any, call: Any = call, **named: Any) -> Any:
                called[name] += 1
                return call(name, *arguments, **named)

            monkeypatch.setattr(part.scripts, "call", counting)

        for _ in range(40):
            await kit.submit()

        assert called["submit"] == 40
        assert called["depth"] <= 16, "a look a second, of each partition"
        assert called["grant"] <= 2, "with each look the ledger is told what it saw"
        assert set(called) <= {"submit", "depth", "grant"}


class TestClientRate:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return admitting(client_rate_per_second=0.01, client_burst=30)

    async def test_a_clients_burst_is_the_same_over_all_partitions_and_processes(
        self, kit: Kit, others: list[Kit]
    ) -> None:
        async def produce(other: Kit) -> int:
            taken = 0
            for _ in range(12):
                try:
                    await other.submit()
                    taken += 1
                except TooManySubmissions:
                    pass
            return taken

        taken = await asyncio.gather(*map(produce, others))

        assert (sum(taken), await depth(kit)) == (30, 30)

    async def test_a_refused_submission_gives_its_tokens_back(self, kit: Kit) -> None:
        for _ in range(3):
            await submit_count(kit, 20)
            with pytest.raises(TooManySubmissions):
                await submit_count(kit, 20)
            await kit.clock.advance(3_000_000)

        assert len(await submit_count(kit, 30)) == 30
