"""The fleet over HTTP: who is there, how they are, and draining one."""

from datetime import datetime, timedelta

import httpx
import pytest

from tests.api.bench import Bench, assert_problem
from tests.kit import Kit

WORKERS = "/api/v1/workers"


async def _silence(kit: Kit) -> None:
    await kit.clock.advance(kit.settings.leases.heartbeat_timeout_ms)
    await kit.queue.sweep()


async def test_a_worker_is_listed_as_it_registered(bench: Bench) -> None:
    declared = {
        "name": "mill",
        "task_types": ["resize"],
        "capabilities": ["gpu"],
        "capacity": 4,
        "version": "1.2",
        "host": "10.0.0.1",
        "health_port": 8081,
    }
    worker_id = await bench.register(**declared)
    await bench.submit("resize")
    await bench.claimed(worker_id)

    listed = await bench.call("GET", WORKERS)

    (worker,) = listed["workers"]
    assert listed["next_cursor"] is None
    assert {name: worker[name] for name in declared} == declared
    assert (worker["worker_id"], worker["status"], worker["held"]) == (worker_id, "active", 1)
    assert (worker["died_at"], worker["health"]) == (None, {})


async def test_a_heartbeat_is_told_with_when_the_next_is_due_and_the_health_it_brought(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register()
    await kit.clock.advance(5_000)

    health = {"memory_usage_percent": 12.5, "note": "é"}
    await bench.call("POST", f"/internal/workers/{worker_id}/heartbeat", {"health": health})

    (worker,) = (await bench.call("GET", WORKERS))["workers"]
    last, due = (datetime.fromisoformat(worker[name]) for name in ("last_heartbeat_at", "heartbeat_due_at"))
    assert worker["health"] == health
    assert due - last == timedelta(milliseconds=kit.settings.leases.heartbeat_timeout_ms)
    assert last - datetime.fromisoformat(worker["registered_at"]) >= timedelta(seconds=5)


async def test_a_worker_that_takes_any_type_says_so(bench: Bench) -> None:
    await bench.register()

    (worker,) = (await bench.call("GET", WORKERS))["workers"]

    assert worker["task_types"] is None


async def test_workers_are_listed_by_status(bench: Bench, kit: Kit) -> None:
    dead = await bench.register(name="dead")
    await _silence(kit)
    active, draining = await bench.register(name="active"), await bench.register(name="draining")
    await kit.fleet.drain(draining)

    async def listed(query: str) -> list[str]:
        return [worker["worker_id"] for worker in (await bench.call("GET", WORKERS + query))["workers"]]

    assert await listed("?status=dead") == [dead]
    assert await listed("?status=active&status=draining") == [active, draining]
    assert await listed("") == [active, dead, draining]


async def test_cursors_lead_through_the_whole_fleet(bench: Bench) -> None:
    everyone = {await bench.register() for _ in range(7)}

    seen, cursor = list[str](), ""
    while cursor is not None:
        page = await bench.call("GET", f"{WORKERS}?limit=3&cursor={cursor}")
        seen += [worker["worker_id"] for worker in page["workers"]]
        cursor = page["next_cursor"]

    assert sorted(seen) == sorted(everyone)


async def test_a_page_links_to_the_next_one_with_the_same_question(http: httpx.AsyncClient, bench: Bench) -> None:
    for _ in range(3):
        await bench.register()

    first = await http.get(f"{WORKERS}?limit=2&status=active")
    second = await http.get(first.links["next"]["url"])

    assert (len(first.json()["workers"]), len(second.json()["workers"])) == (2, 1)
    assert "status=active" in first.links["next"]["url"]
    assert "link" not in second.headers


@pytest.mark.parametrize(
    "query", ["status=asleep", "limit=0", "limit=501", "limit=x", "cursor=%00", "cursor=YSBi", "cursor=a", "cursor=é"]
)
async def test_a_query_that_makes_no_sense_is_refused(http: httpx.AsyncClient, kit: Kit, query: str) -> None:
    answer = await http.get(f"{WORKERS}?{query}")

    assert answer.status_code in (400, 422)
    assert_problem(answer, answer.status_code)


async def test_a_drained_worker_keeps_what_it_holds_and_gets_nothing_new(bench: Bench) -> None:
    worker_id = await bench.register(capacity=2)
    await bench.submit()
    task = await bench.started(worker_id)
    await bench.submit()

    answer = await bench.call("POST", f"{WORKERS}/{worker_id}/drain")

    poll = await bench.poll(worker_id)
    (worker,) = (await bench.call("GET", WORKERS))["workers"]
    assert answer == {"worker_id": worker_id, "status": "draining"}
    assert (poll["tasks"], poll["should_drain"], worker["status"]) == ([], True, "draining")
    assert (await bench.tell(worker_id, "result", task, status="completed"))["status"] == "completed"


async def test_a_drain_said_twice_is_answered_twice(bench: Bench) -> None:
    worker_id = await bench.register()

    answers = [await bench.call("POST", f"{WORKERS}/{worker_id}/drain") for _ in range(2)]

    assert answers[0] == answers[1]


@pytest.mark.parametrize("worker_id", ["nobody", "a b", "%00", "é{}:*"])
async def test_draining_nobody_is_not_found(http: httpx.AsyncClient, kit: Kit, worker_id: str) -> None:
    before = await kit.dump()

    assert_problem(await http.post(f"{WORKERS}/{worker_id}/drain"), 404, "unknown-worker")

    assert await kit.dump() == before


async def test_a_dead_worker_cannot_be_drained(http: httpx.AsyncClient, bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register()
    await _silence(kit)

    assert_problem(await http.post(f"{WORKERS}/{worker_id}/drain"), 404, "unknown-worker")
