"""Totals: how many tasks of a type ended last in which state, as the scripts count it."""

import pytest

from tests.contract.situations import complete_all, ended_types, started_count, submit_count, task_in
from tests.kit import Kit
from tideq.queue_core.samples import MAX_TASK_TYPES
from tideq.queue_core.settings import Leases, QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.ended_tasks import MOST_KINDS
from tideq.queue_core.transitions import TERMINAL

HOUR_MS = 3_600_000
MANY_TYPES = 1_000


async def totals(kit: Kit) -> dict[str, int]:
    """Of all types, where there are any."""
    stats = await kit.insight.stats()
    return {state: count for state in sorted(TERMINAL) if (count := stats.ended_count(TaskState(state)))}


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_a_task_that_ends_is_counted_until_it_is_purged(kit: Kit, state: TaskState) -> None:
    await kit.worker()
    await kit.submit("crop", required_capabilities=("gpu",))
    task = await task_in(kit, state)
    counted = (await kit.insight.stats()).by_type_and_state

    await kit.queue.purge(task.task_id)

    nothing = dict.fromkeys(TaskState, 0)
    assert counted == {"crop": nothing | {"queued": 1}, "resize": nothing | {state: 1}}
    assert await totals(kit) == {}


@pytest.mark.parametrize("state", ["failed", "dead_letter", "cancelled"])
async def test_a_task_that_runs_again_is_counted_by_how_it_ends_last(kit: Kit, state: str) -> None:
    await kit.worker()
    task = await task_in(kit, TaskState(state))

    await kit.queue.retry(task.task_id)
    alive = await totals(kit)
    await kit.complete(await kit.started())

    assert alive == {}
    assert await totals(kit) == {"completed": 1}


async def test_a_batch_is_counted_by_type_whatever_its_capabilities(kit: Kit) -> None:
    await kit.worker(capabilities=("gpu",))
    tasks = await started_count(kit, 2) + await started_count(kit, 3, required_capabilities=("gpu",))
    others = await started_count(kit, 1, task_type="crop")

    await complete_all(kit, tasks + others)

    known = (await kit.insight.stats()).by_type_and_state
    assert {task_type: states["completed"] for task_type, states in known.items()} == {"resize": 5, "crop": 1}


async def test_what_is_answered_twice_is_counted_once(kit: Kit) -> None:
    await kit.worker()
    task = await task_in(kit, TaskState.EXECUTING)

    await kit.complete(task)
    await kit.complete(task)

    assert await totals(kit) == {"completed": 1}


class TestTheStoreForgets:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings()

    async def test_a_task_that_left_the_store_goes_on_being_counted(self, kit: Kit) -> None:
        await kit.worker()
        task = await task_in(kit, TaskState.COMPLETED)
        version = (await kit.read(task.task_id)).version
        for part in kit.engine.parts:
            await part.partition.acknowledge("0-0", [(task.task_id, version)])

        await kit.clock.advance(kit.settings.retention.result_ttl_ms + 1)
        await kit.queue.sweep()

        assert await kit.queue.read_many([task.task_id]) == [None]
        assert await totals(kit) == {"completed": 1}


class TestFewLanes:
    """Its lane may stand for another type when a task is purged."""

    async def test_a_purge_uncounts_what_the_task_was(self, kit: Kit) -> None:
        await kit.worker()
        task = await task_in(kit, TaskState.COMPLETED)
        lane = next(iter((await kit.insight.snapshot()).lane_names))
        now_ms = (await kit.insight.stats()).now_ms + 1
        await kit.client.zadd(kit.keys.key("retired_lanes"), {f"{lane} {now_ms} resize|": now_ms})
        await kit.client.hset(kit.keys.key("lane_names"), lane, "crop|")

        await kit.queue.purge(task.task_id)

        assert await totals(kit) == {}
        assert (await kit.insight.stats()).by_type_and_state == {}


class TestRecoveries:
    @pytest.fixture
    def settings(self) -> QueueSettings:
        return QueueSettings(leases=Leases(max_deliveries=1))

    async def test_a_task_that_a_sweep_gives_up_is_counted(self, kit: Kit) -> None:
        await kit.worker()
        await submit_count(kit, 2)
        await kit.queue.claim("w1", 2)

        await kit.clock.advance(kit.settings.leases.assignment_ms + 1)
        await kit.queue.sweep()

        assert await totals(kit) == {"dead_letter": 2}


async def test_types_beyond_the_most_are_counted_together_and_totals_stay_exact(kit: Kit) -> None:
    """However many types ever ended, what is read is no more; a task that is purged is taken out of where it counts."""
    await kit.worker()
    named = await ended_types(kit, MOST_KINDS)
    task_ids = named + await ended_types(kit, MANY_TYPES - MOST_KINDS, MOST_KINDS)
    stats = await kit.insight.stats()

    await kit.queue.purge_many(named[::2])
    fewer = await totals(kit)
    await kit.queue.purge_many([*named[1::2], *task_ids[MOST_KINDS:]])

    assert len(stats.counted) <= (MOST_KINDS + 8) * len(kit.engine.parts)
    assert len(stats.by_type_and_state) == MAX_TASK_TYPES + 1
    assert sum(states["completed"] for states in stats.by_type_and_state.values()) == MANY_TYPES
    assert stats.ended_count(TaskState.COMPLETED) == MANY_TYPES
    assert fewer == {"completed": MANY_TYPES - MOST_KINDS / 2}
    assert await totals(kit) == {}
    assert sum((await kit.insight.stats()).counted.values()) == 0


async def test_a_store_without_history_says_since_when_it_counts(kit: Kit) -> None:
    await kit.worker()
    before = (await kit.insight.stats()).counted_since_ms
    await task_in(kit, TaskState.COMPLETED)
    first_ms = (await kit.insight.stats()).now_ms

    await kit.clock.advance(HOUR_MS)
    task_id = await kit.submit()
    await kit.queue.cancel(task_id)

    since_ms = (await kit.insight.stats()).counted_since_ms
    assert before is None
    assert since_ms is not None
    assert 0 <= first_ms - since_ms < 60_000
