"""What a worker says about itself counts: over plain HTTP calls, as a worker in any language makes them.

On a queue of one partition and on one of four: nobody outside can tell which it is.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import httpx
import pytest

from tests.api.bench import Bench, Json, assert_problem, until
from tests.kit import Kit
from tests.stores import StoreUnderTest
from tideq.api.service import Service
from tideq.queue_core.scripts.keys import Keys
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.store.clock import StoreClock

WORKERS = "/api/v1/workers"
SELF_HELD = {"draining": "draining_by_itself", "unhealthy": "unhealthy_by_itself"}
TASKS = 8

pytestmark = pytest.mark.parametrize("store", ["valkey", "four_partitions"], indirect=True)


@pytest.fixture
def settings(store: StoreUnderTest) -> QueueSettings:
    return QueueSettings(partitions=(store.partition_count,))


@pytest.fixture
async def kit(service: Service) -> AsyncIterator[Kit]:
    queue, engine = service.settings.queue, service.engine
    keys = [Keys(queue.queue_name, partition) for partition in range(len(engine.parts))]
    kit = Kit(service.client, queue, keys[0], engine, StoreClock(service.client, *keys))
    yield kit
    await kit.assert_sound()


@pytest.fixture
def bench(http: httpx.AsyncClient, kit: Kit) -> Bench:
    return Bench(http)


async def beat(bench: Bench, worker_id: str, **said: object) -> Json:
    return await bench.call("POST", f"/internal/workers/{worker_id}/heartbeat", said)


async def shown(bench: Bench, worker_id: str) -> Json:
    return await bench.call("GET", f"{WORKERS}/{worker_id}")


async def listed(bench: Bench, worker_id: str) -> Json:
    (worker,) = [each for each in (await bench.call("GET", WORKERS))["workers"] if each["worker_id"] == worker_id]
    return worker


@pytest.mark.parametrize("status", SELF_HELD)
async def test_a_worker_that_says_it_gets_no_work_until_it_says_active(bench: Bench, status: str) -> None:
    worker_id = await bench.register(capacity=TASKS)
    for _ in range(TASKS):
        await bench.submit()
    await beat(bench, worker_id, status=status, current_load=0)

    polled = await bench.poll(worker_id, available_capacity=TASKS)
    in_sync = await bench.sync(worker_id, available_capacity=TASKS)
    started = await bench.poll(worker_id, available_capacity=TASKS, start_claimed=True, poll_id="p-1")
    await beat(bench, worker_id, status="active")
    given = await bench.poll(worker_id, available_capacity=TASKS)

    assert (polled["tasks"], in_sync["tasks"], started["tasks"]) == ([], [], [])
    assert len(given["tasks"]) == TASKS


@pytest.mark.parametrize("status", SELF_HELD)
async def test_what_it_holds_stays_its_own(bench: Bench, status: str) -> None:
    worker_id = await bench.register(capacity=2)
    await bench.submit()
    await bench.submit()
    task, unstarted = await bench.started(worker_id), await bench.claimed(worker_id)

    await beat(bench, worker_id, status=status)

    assert (await bench.tell(worker_id, "start", unstarted))["acknowledged"]
    for each in (task, unstarted):
        assert (await bench.tell(worker_id, "result", each, status="completed"))["status"] == "completed"


async def test_its_own_word_is_not_sent_back_to_it_as_a_wish_to_leave(bench: Bench) -> None:
    worker_id = await bench.register()

    answer = await beat(bench, worker_id, status="draining")

    assert not answer["should_drain"]
    assert not (await bench.poll(worker_id))["should_drain"]


async def test_a_heartbeat_without_a_status_keeps_what_was_said_before(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit()
    await beat(bench, worker_id, status="unhealthy", current_load=3)

    await beat(bench, worker_id)
    await beat(bench, worker_id, health={"memory_usage_percent": 95})

    worker = await shown(bench, worker_id)
    assert (worker["status"], worker["current_load"]) == ("unhealthy", 3)
    assert (await bench.poll(worker_id))["tasks"] == []


async def test_an_operators_drain_wins_over_a_worker_that_says_active(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit()
    await bench.call("POST", f"{WORKERS}/{worker_id}/drain")

    answer = await beat(bench, worker_id, status="active")

    worker = await shown(bench, worker_id)
    assert answer["should_drain"]
    assert (worker["status"], worker["reason"]) == ("draining", "drained_by_operator")
    assert (await bench.poll(worker_id))["tasks"] == []


async def test_an_operators_drain_of_a_worker_that_drains_by_itself_reaches_it(bench: Bench) -> None:
    worker_id = await bench.register()
    await beat(bench, worker_id, status="draining")

    await bench.call("POST", f"{WORKERS}/{worker_id}/drain")

    assert (await beat(bench, worker_id))["should_drain"]
    assert (await shown(bench, worker_id))["reason"] == "drained_by_operator"


async def test_a_worker_that_dies_while_it_says_draining_is_dead_and_its_task_comes_back(
    bench: Bench, kit: Kit
) -> None:
    worker_id = await bench.register(capacity=2)
    await bench.submit()
    task = await bench.started(worker_id)
    await beat(bench, worker_id, status="draining")

    await kit.clock.advance(kit.settings.leases.heartbeat_timeout_ms)
    await kit.queue.sweep()

    worker = await shown(bench, worker_id)
    assert (worker["status"], worker["reason"], worker["since"]) == ("dead", "heartbeat_missed", worker["died_at"])
    assert worker["current_tasks"] == []
    assert (await bench.read(task["task_id"]))["status"] == "queued"
    late = await bench.http.post(f"/internal/workers/{worker_id}/heartbeat", json={"status": "active"})
    assert_problem(late, 404, "unknown-worker")


@pytest.mark.parametrize("status", ["dead", "leaving", "busy", "", 1])
async def test_a_status_that_no_worker_can_have_is_refused_by_name(bench: Bench, status: object) -> None:
    worker_id = await bench.register()

    answer = await bench.http.post(f"/internal/workers/{worker_id}/heartbeat", json={"status": status})

    problem = assert_problem(answer, 422)
    assert "status" in str(problem)
    assert (await shown(bench, worker_id))["status"] == "active"


@pytest.mark.parametrize("status", SELF_HELD)
async def test_a_poll_that_waits_is_given_work_when_its_worker_says_active(
    bench: Bench, service: Service, status: str
) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit()
    await beat(bench, worker_id, status=status)
    waiting = asyncio.create_task(bench.poll(worker_id, wait_seconds=30))

    async def sleeps() -> bool:
        return service.wakeups.sleeping_count > 0

    await until(sleeps)
    await beat(bench, worker_id, status="active")

    async with asyncio.timeout(10):
        assert [task["task_id"] for task in (await waiting)["tasks"]] == [task_id]


async def test_a_worker_is_shown_with_why_and_since_when_it_is_as_it_is(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register()
    active = await shown(bench, worker_id)
    await kit.clock.advance(5_000)
    await beat(bench, worker_id, status="unhealthy", current_load=2)
    unhealthy = await shown(bench, worker_id)
    await kit.clock.advance(5_000)
    await beat(bench, worker_id, status="unhealthy", current_load=1)

    assert (active["status"], active["reason"], active["since"]) == ("active", None, active["registered_at"])
    assert active["current_load"] is None
    assert (unhealthy["status"], unhealthy["reason"]) == ("unhealthy", "unhealthy_by_itself")
    assert "heartbeat" in unhealthy["reason_detail"]
    waited = datetime.fromisoformat(unhealthy["since"]) - datetime.fromisoformat(active["since"])
    assert 5 <= waited.total_seconds() < 10
    again = await shown(bench, worker_id)
    assert (again["since"], again["current_load"]) == (unhealthy["since"], 1)
    assert {**await listed(bench, worker_id), "last_heartbeat_at": again["last_heartbeat_at"]} == again


async def test_a_worker_is_shown_with_all_it_holds_and_listed_with_some(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register(capacity=30)
    submitted = sorted([await bench.submit() for _ in range(30)])
    given = list[Json]()
    while len(given) < 30:
        given += (await bench.poll(worker_id, available_capacity=30 - len(given)))["tasks"]

    worker, in_list = await shown(bench, worker_id), await listed(bench, worker_id)

    assert (worker["current_tasks"], worker["held"]) == (submitted, 30)
    assert (len(in_list["current_tasks"]), in_list["held"]) == (20, 30)
    assert set(in_list["current_tasks"]) < set(submitted)


async def test_a_worker_nobody_knows_is_not_found(bench: Bench) -> None:
    for worker_id in ("nobody", "a b", "é{}:*"):
        assert_problem(await bench.http.get(f"{WORKERS}/{worker_id}"), 404, "unknown-worker")


async def test_workers_are_counted_and_listed_by_what_they_say(bench: Bench) -> None:
    draining, ill = await bench.register(), await bench.register()
    await bench.register()
    await beat(bench, draining, status="draining")
    await beat(bench, ill, status="unhealthy")

    stats = (await bench.call("GET", "/api/v1/queue/stats"))["workers"]
    found = (await bench.call("GET", f"{WORKERS}?status=draining&status=unhealthy"))["workers"]

    assert (stats["active"], stats["draining"], stats["unhealthy"]) == (1, 1, 1)
    assert {worker["worker_id"] for worker in found} == {draining, ill}


async def test_a_task_is_explained_without_the_workers_that_take_nothing(bench: Bench) -> None:
    worker_id, task_id = await bench.register(), await bench.submit()
    before = await bench.call("GET", f"/api/v1/tasks/{task_id}/explain")

    await beat(bench, worker_id, status="draining")

    after = await bench.call("GET", f"/api/v1/tasks/{task_id}/explain")
    assert (before["serving_workers"], after["serving_workers"]) == (1, 0)


async def test_workers_found_unhealthy_are_counted_once_by_why(bench: Bench, kit: Kit) -> None:
    by_itself, probed, silent = [await bench.register() for _ in range(3)]
    for status in ("unhealthy", "unhealthy", "active", "unhealthy"):
        await beat(bench, by_itself, status=status)
    for failures in (1, 2, 3):
        await kit.fleet.set_state(probed, "unhealthy" if failures > 1 else None, failures)
    assert (await shown(bench, probed))["health_failures"] == 3
    stats = await bench.call("GET", "/api/v1/queue/stats")
    await kit.clock.advance(kit.settings.leases.heartbeat_timeout_ms - 1_000)
    await beat(bench, by_itself)
    await beat(bench, probed)
    await kit.clock.advance(1_000)
    await kit.queue.sweep()
    assert (await shown(bench, silent))["status"] == "dead"

    metrics = (await bench.http.get("/metrics")).text

    failures = {
        line.split('reason="')[1].split('"')[0]: float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("tideq_worker_failures_total{")
    }
    assert failures == {"heartbeat_missed": 1, "probe_failed": 1, "unhealthy_by_itself": 2}
    assert stats["recovery_stats"]["health_probe_failures_last_hour"] == 3


async def test_a_good_probe_does_not_overrule_a_worker_that_says_it_is_unhealthy(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register()
    await bench.submit()
    await beat(bench, worker_id, status="unhealthy")

    assert await kit.fleet.set_health(worker_id, is_healthy=True) == "unhealthy"

    assert (await bench.poll(worker_id))["tasks"] == []


async def test_a_worker_that_says_active_is_unhealthy_while_its_probes_fail(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register()
    await bench.submit()
    await kit.fleet.set_health(worker_id, is_healthy=False)

    await beat(bench, worker_id, status="active")

    worker = await shown(bench, worker_id)
    assert (worker["status"], worker["reason"]) == ("unhealthy", "probe_failed")
    assert (await bench.poll(worker_id))["tasks"] == []


async def test_draining_comes_before_unhealthy(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register()
    await kit.fleet.set_health(worker_id, is_healthy=False)

    await beat(bench, worker_id, status="draining")

    assert (await shown(bench, worker_id))["reason"] == "draining_by_itself"


async def test_a_registration_without_a_capacity_is_one_of_five(bench: Bench) -> None:
    worker_id = await bench.register()

    assert (await shown(bench, worker_id))["capacity"] == 5
