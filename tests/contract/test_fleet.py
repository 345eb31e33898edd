"""The fleet: register, heartbeat, drain, judge, dismiss."""

import pytest

from tests.contract.situations import claimed_ids, held, started_count, submit_count, task_in
from tests.kit import Kit
from tideq.queue_core.errors import InvalidRequest, StaleLease, UnknownWorker, WorkerExists
from tideq.queue_core.states import Reason, TaskState

SILENCE_MS = 90_000


async def test_register_adds_an_active_worker_with_its_capacity(kit: Kit) -> None:
    await kit.worker("w1", capacity=5)

    workers = (await kit.insight.stats()).workers
    assert (workers.active, workers.total_capacity, workers.used_capacity) == (1, 5, 0)


async def test_register_of_a_name_in_use_changes_nothing(kit: Kit) -> None:
    await kit.worker("w1", task_types=("resize",))
    before = await kit.dump()

    with pytest.raises(WorkerExists) as refusal:
        await kit.worker("w1", task_types=("crop",))

    assert refusal.value.worker_id == "w1"
    assert await kit.dump() == before


@pytest.mark.parametrize(
    "fields",
    [
        {"worker_id": "no spaces"},
        {"worker_id": ""},
        {"worker_id": "x" * 65},
        {"task_types": ("a|b",)},
        {"task_types": ()},
        {"capabilities": ("a,b",)},
        {"capacity": 0},
        {"capacity": 10_001},
    ],
    ids=str,
)
async def test_register_of_a_worker_that_makes_no_sense_changes_nothing(kit: Kit, fields: dict[str, object]) -> None:
    before = await kit.dump()

    with pytest.raises(InvalidRequest):
        await kit.worker(**{"worker_id": "w1", **fields})  # pyright: ignore[reportArgumentType]

    assert await kit.dump() == before


async def test_register_again_after_death_makes_a_working_worker(kit: Kit) -> None:
    task_id = await kit.submit()
    await kit.worker()
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()

    await kit.worker()

    assert await claimed_ids(kit) == [task_id]


async def test_register_again_after_death_is_counted_as_alive_only(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()

    await kit.worker()

    workers = (await kit.insight.stats()).workers
    assert (workers.active, workers.dead) == (1, 0)


async def test_register_again_after_death_is_not_forgotten_with_the_dead(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()
    await kit.worker()

    await kit.clock.advance(SILENCE_MS - 1_000)
    for _ in range(45):
        await kit.fleet.heartbeat("w1")
        await kit.clock.advance(SILENCE_MS - 1_000)
    await kit.queue.sweep()

    assert (await kit.fleet.heartbeat("w1")).stops == ()


async def test_heartbeat_by_an_unknown_worker_changes_nothing(kit: Kit) -> None:
    before = await kit.dump()

    with pytest.raises(UnknownWorker):
        await kit.fleet.heartbeat("nobody")

    assert await kit.dump() == before


async def test_heartbeat_of_a_worker_overdue_but_not_yet_given_up_saves_it(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)
    await kit.clock.advance(SILENCE_MS + 1_000)

    await kit.fleet.heartbeat("w1")
    await kit.queue.sweep()

    assert await kit.complete(started) == "completed"


async def test_drain_leaves_the_worker_what_it_holds(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.fleet.drain("w1")

    assert (await kit.fleet.heartbeat("w1")).should_drain
    assert await kit.complete(started) == "completed"
    assert (await kit.insight.stats()).workers.draining == 1


async def test_drain_is_not_undone_by_good_health(kit: Kit) -> None:
    await kit.worker()
    await kit.fleet.drain("w1")

    assert await kit.fleet.set_health("w1", is_healthy=True) == "draining"
    assert await kit.fleet.set_health("w1", is_healthy=False) == "draining"


async def test_judging_a_worker_unhealthy_leaves_it_what_it_holds(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    assert await kit.fleet.set_health("w1", is_healthy=False) == "unhealthy"

    assert (await kit.insight.stats()).workers.unhealthy == 1
    assert await kit.complete(started) == "completed"


async def test_judging_a_worker_healthy_makes_it_active(kit: Kit) -> None:
    await kit.worker()
    await kit.fleet.set_health("w1", is_healthy=False)

    assert await kit.fleet.set_health("w1", is_healthy=True) == "active"


@pytest.mark.parametrize("verb", ["drain", "remove"])
async def test_a_verdict_about_an_unknown_worker_changes_nothing(kit: Kit, verb: str) -> None:
    before = await kit.dump()

    with pytest.raises(UnknownWorker):
        await getattr(kit.fleet, verb)("nobody")

    assert await kit.dump() == before


async def test_judging_a_dead_worker_healthy_does_not_bring_it_back(kit: Kit) -> None:
    await kit.worker()
    await kit.clock.advance(SILENCE_MS)
    await kit.queue.sweep()

    with pytest.raises(UnknownWorker):
        await kit.fleet.set_health("w1", is_healthy=True)


async def test_dismiss_hands_everything_back_free_of_charge_and_in_its_place(kit: Kit) -> None:
    await kit.worker()
    started = await started_count(kit, 2)
    await submit_count(kit, 2)
    claim = await kit.queue.claim("w1", 2)
    later = await submit_count(kit, 2)

    assert await kit.fleet.remove("w1") == 4

    handed_back = [task.task_id for task in (*started, *claim.tasks)]
    tasks = [await kit.read(task_id) for task_id in handed_back]
    assert {task.reason for task in tasks} == {Reason.RELEASED}
    assert {(task.losses, task.deliveries, task.retry_count) for task in tasks} == {(0, 0, 0)}
    await kit.worker("w2")
    assert await claimed_ids(kit, "w2") == handed_back + later


async def test_dismiss_of_a_worker_that_holds_very_much_hands_all_of_it_back(kit: Kit) -> None:
    await kit.worker()
    await started_count(kit, 450)

    assert await kit.fleet.remove("w1") == 450

    assert (await kit.insight.stats()).by_state == {"queued": 450, "assigned": 0, "executing": 0}


async def test_dismiss_makes_the_worker_unknown(kit: Kit) -> None:
    await kit.worker()
    started = await task_in(kit, TaskState.EXECUTING)

    await kit.fleet.remove("w1")

    with pytest.raises(UnknownWorker):
        await kit.fleet.heartbeat("w1")
    with pytest.raises(StaleLease):
        await kit.complete(started)
    assert (await kit.insight.stats()).workers.active == 0


async def test_dismiss_frees_the_name(kit: Kit) -> None:
    await kit.worker()
    await kit.fleet.remove("w1")

    await kit.worker()

    assert (await kit.insight.stats()).workers.active == 1


async def test_the_fleet_uses_as_much_capacity_as_it_holds_tasks(kit: Kit) -> None:
    await kit.worker("w1", capacity=10)
    await kit.worker("w2", capacity=5)
    first, *_ = await started_count(kit, 4)

    await kit.attempts.release("w1", held(first))

    workers = (await kit.insight.stats()).workers
    assert (workers.total_capacity, workers.used_capacity) == (15, 3)
