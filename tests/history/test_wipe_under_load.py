"""FLUSHALL under load: refused at once, rebuilt, and only what history had not heard of yet is lost."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.contract.situations import held
from tests.history.checker import History, read_history
from tests.history.population import ROOMY, populate, standing
from tests.history.scale import LIVE_COUNT, tell
from tests.history.servers import own_valkey
from tests.history.situations import replicating, until, until_open, until_replicated
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.persistence.database import Database
from tideq.persistence.recovery.open_store import OpenStore
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.attempts import Success
from tideq.queue_core.errors import StoreReplaced, Unavailable
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.task import NewTask


@pytest.fixture
def settings() -> QueueSettings:
    """Nothing comes back by itself, however slow the machine is: what is compared must stay as it was."""
    leases = msgspec.structs.replace(ROOMY.leases, assignment_ms=3_600_000, heartbeat_timeout_ms=3_600_000)
    return msgspec.structs.replace(ROOMY, leases=leases)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with own_valkey(tmp_path / "valkey") as server:
        yield StoreUnderTest("valkey", server.redis_url)


class Busy:
    """Producers and workers of tasks of their own, who note what they were told, in which epoch, and when."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.submitted: dict[str, int] = {}
        self.results: dict[str, list[tuple[str, int]]] = {}
        self.refused_count = 0
        self.is_over = False

    async def produce(self) -> None:
        while not self.is_over:
            try:
                (task,) = await self._kit.queue.submit_many([NewTask(task_type="busy")])
                self.submitted[task.task_id] = task.now_ms
            except Unavailable:
                self.refused_count += 1
            await asyncio.sleep(0.002)

    async def work(self, worker_id: str) -> None:
        while not self.is_over:
            try:
                await self._work(worker_id)
            except Unavailable:
                self.refused_count += 1
            await asyncio.sleep(0.002)

    async def _work(self, worker_id: str) -> None:
        claim = await self._kit.queue.claim(worker_id, 5)
        if not claim.tasks:
            return
        await self._kit.attempts.start(worker_id, held(*claim.tasks))
        settled = await self._kit.attempts.complete(worker_id, [Success(*each) for each in held(*claim.tasks)])
        for outcome in settled:
            if not outcome.error:
                epoch = self._kit.engine.scripts.epoch
                self.results.setdefault(outcome.task_id, []).append((epoch, claim.now_ms))


async def test_a_store_wiped_under_load_refuses_at_once_and_comes_back_as_history_knew_it(
    kit: Kit, kept: OpenStore, migrated: Database, store: StoreUnderTest, history_settings: HistorySettings
) -> None:
    population = await populate(kit, LIVE_COUNT)
    busy = Busy(kit)
    for worker_id in ("b1", "b2"):
        await kit.worker(worker_id, task_types=("busy",), capacity=1_000)

    async with replicating(kept, store.url, kit):
        await until_replicated(kit, migrated)
        loops = [asyncio.create_task(each) for each in (busy.produce(), busy.work("b1"), busy.work("b2"))]
        await until(lambda: _has_finished(busy, 300))
        await kit.client.flushall()
        wiped = time.perf_counter()
        with pytest.raises(StoreReplaced):
            await kit.submit()
        tell(f"refused {(time.perf_counter() - wiped) * 1000:.0f} ms after {LIVE_COUNT} tasks were wiped")
        await until_open(kit)
        tell(f"open again after {time.perf_counter() - wiped:.1f} s")
        finished = len(busy.results)
        await until(lambda: _has_finished(busy, finished + 100))
        busy.is_over = True
        await asyncio.gather(*loops)
        after = await kit.insight.snapshot()
        settled = await kit.attempts.complete("w1", [Success(*each) for each in held(*population.executing)])
        await until_replicated(kit, migrated)

    assert busy.refused_count > 0
    assert {task_id: each for task_id, each in standing(after).items() if task_id in population.live} == population.live
    assert [outcome.error for outcome in settled] == [None] * len(settled)
    _assert_only_the_lag_is_lost(busy, read_history(history_settings.database_url, migrated.schema))


def _assert_only_the_lag_is_lost(busy: Busy, history: History) -> None:
    """What history had of the first epoch is a beginning of it; nothing that was told in the second is missing."""
    known_until = max(event.at_ms for event in history.events if event.epoch == 1)
    lost = [at_ms for task_id, at_ms in busy.submitted.items() if task_id not in history.tasks]
    assert all(at_ms >= known_until for at_ms in lost)
    assert len(lost) < len(busy.submitted) / 2
    completions = {event.task_id: event.epoch for event in history.events if event.state == "completed"}
    for task_id, told in busy.results.items():
        epochs = [int(epoch) for epoch, _ in told]
        if completions.get(task_id) == 1:
            assert epochs == [1], f"{task_id} was accepted again although history had its result"
        assert epochs.count(2) == int(completions.get(task_id) == 2)


async def _has_finished(busy: Busy, count: int) -> bool:
    return len(busy.results) >= count
