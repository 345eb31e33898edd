"""How a worker ends: on a signal, on a second one, and when the service asks it to."""

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.api.bench import Bench, Json
from tests.api.running import Running
from tests.kit import Kit
from tests.workers.conftest import SHARED_HEARTBEAT_SECONDS
from tests.workers.waiting import ended, registrations, until
from tests.workers.workshop import Hand, Workshop

COSTS = ("attempt", "deliveries", "losses", "retry_count")


async def waiting_in(bench: Bench, hand: Hand, count: int = 3) -> list[Json]:
    """Its registrations, once all its crews have theirs."""

    async def is_so() -> bool:
        return len(await registrations(bench, hand)) == count

    await until(is_so)
    return await registrations(bench, hand)


async def running_task(bench: Bench, shop: Workshop, may_end: Path, **fields: object) -> str:
    task_id = await bench.submit("until_file", parameters={"path": str(may_end)}, **fields)
    await until(lambda: shop.ledger.count("start", task_id=task_id))
    return task_id


async def test_an_idle_worker_leaves_at_once_and_takes_nothing_with_it(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand = shop.hire(service.url, "--drain-seconds", "30")
    await waiting_in(bench, hand)

    hand.signal(signal.SIGINT)
    status = hand.ended()
    task_id = await bench.submit("short")

    assert status == 0
    assert await registrations(bench, hand) == []
    task = await bench.read(task_id)
    assert (task["status"], task["attempt"], task["version"]) == ("queued", 0, 1)
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")


async def test_what_runs_is_finished_and_delivered_and_nothing_more_is_claimed(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand, may_end = shop.hire(service.url), shop.new_file()
    running = [await running_task(bench, shop, may_end) for _ in range(3)]

    hand.signal(signal.SIGTERM)
    await until(lambda: len(hand.events("drain started")) == 3)
    late = await bench.submit("short")

    async def all_say_so() -> bool:
        found = await registrations(bench, hand)
        return {each["status"] for each in found if each["held"]} == {"draining"}

    await until(all_say_so)
    leaving = await registrations(bench, hand)
    may_end.touch()
    status = hand.ended()

    assert status == 0
    assert {each["reason"] for each in leaving} == {"draining_by_itself"}
    assert sorted(task_id for each in leaving for task_id in each["current_tasks"]) == sorted(running)
    assert sum(each["current_load"] for each in leaving) == 3
    tasks = [await bench.read(task_id) for task_id in running]
    assert {(task["status"], task["attempt"]) for task in tasks} == {("completed", 1)}
    assert (await bench.read(late))["version"] == 1
    assert await registrations(bench, hand) == []
    await bench.call("DELETE", f"/api/v1/tasks/{late}")


async def test_what_does_not_finish_in_time_is_handed_back_free_of_charge_and_to_its_place(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand, may_end = shop.hire(service.url, "--drain-seconds", "0.5"), shop.new_file()
    quick = await running_task(bench, shop, quick_end := shop.new_file())
    slow = await running_task(bench, shop, may_end)
    before = await bench.read(slow)
    behind = await bench.submit("until_file", parameters={"path": str(may_end)}, priority="low")

    hand.signal(signal.SIGTERM)
    await until(lambda: len(hand.events("drain started")) == 3)
    quick_end.touch()
    status = hand.ended()

    assert status == 0
    assert (await bench.read(quick))["status"] == "completed"
    after = await bench.read(slow)
    assert (after["status"], after["reason"]) == ("queued", "released")
    assert [after[cost] for cost in COSTS] == [before[cost] for cost in COSTS] == [1, 0, 0, 0]
    assert (after["queue_position"], after["error"]) == (0, None)
    # Another does it, and what waited behind it after it.
    may_end.touch()
    shop.hire(service.url)
    assert (await ended(bench, slow))["attempt"] == 2
    assert (await ended(bench, behind))["attempt"] in (1, 2)


async def test_a_second_signal_does_not_wait(service: Running, bench: Bench, kit: Kit, shop: Workshop) -> None:
    hand, may_end = shop.hire(service.url, "--drain-seconds", "3600"), shop.new_file()
    task_id = await running_task(bench, shop, may_end)

    hand.signal(signal.SIGTERM)
    await until(lambda: len(hand.events("drain started")) == 3)
    is_waiting = hand.process.poll() is None
    hand.signal(signal.SIGTERM)
    status = hand.ended()

    task = await bench.read(task_id)
    assert (is_waiting, status) == (True, 0)
    assert (task["status"], [task[cost] for cost in COSTS]) == ("queued", [1, 0, 0, 0])
    assert await registrations(bench, hand) == []
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")


async def test_handed_back_jobs_and_processes_are_stopped(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand = shop.hire(service.url, "--drain-seconds", "0")
    ids = [await bench.submit(kind, parameters={"seconds": 3600}) for kind in ("attentive_async", "compute")]
    await until(lambda: shop.ledger.count("start") == 2)

    hand.signal(signal.SIGTERM)
    status = hand.ended()

    assert status == 0
    pids = {line["pid"] for line in shop.ledger.lines("start")}
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    for task in [await bench.read(task_id) for task_id in ids]:
        assert (task["status"], [task[cost] for cost in COSTS]) == ("queued", [1, 0, 0, 0])
        await bench.call("DELETE", f"/api/v1/tasks/{task['task_id']}")


async def test_asked_by_the_service_a_crew_drains_and_with_the_last_the_process_ends(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand, may_end = shop.hire(service.url), shop.new_file()
    task_id = await running_task(bench, shop, may_end)
    crews = await waiting_in(bench, hand)
    busy = next(crew for crew in crews if "until_file" in crew["task_types"])
    idle = [crew for crew in crews if crew is not busy]

    await bench.call("POST", f"/api/v1/workers/{idle[0]['worker_id']}/drain")
    remaining = await waiting_in(bench, hand, 2)
    is_alive = hand.process.poll() is None
    for crew in (busy, idle[1]):
        await bench.call("POST", f"/api/v1/workers/{crew['worker_id']}/drain")
    await until(lambda: len(hand.events("drain started")) == 3)
    may_end.touch()
    status = hand.ended()

    assert is_alive
    assert idle[0]["worker_id"] not in {crew["worker_id"] for crew in remaining}
    assert status == 0
    assert (await bench.read(task_id))["status"] == "completed"
    assert await registrations(bench, hand) == []


async def test_a_task_that_outlasts_the_heartbeat_timeout_during_a_drain_is_finished_and_not_lost(
    service: Running, bench: Bench, kit: Kit, shop: Workshop
) -> None:
    hand, may_end = shop.hire(service.url, "--drain-seconds", "3600"), shop.new_file()
    task_id = await running_task(bench, shop, may_end)

    hand.signal(signal.SIGTERM)
    await until(lambda: len(hand.events("drain started")) == 3)
    given_up_at = datetime.now(UTC) + timedelta(seconds=SHARED_HEARTBEAT_SECONDS)
    await until(lambda: datetime.now(UTC) > given_up_at)
    await kit.queue.sweep()
    may_end.touch()
    status = hand.ended()

    task = await bench.read(task_id)
    assert status == 0
    assert (task["status"], [task[cost] for cost in COSTS]) == ("completed", [1, 0, 0, 0])
