"""A worker's life over HTTP, by single calls and by sync, and what it is told when things have moved on."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, Json, assert_problem, held, until
from tests.kit import Kit
from tideq.api.service import Service
from tideq.queue_core.fleet import Fleet
from tideq.queue_core.worker_calls import Heartbeat

VERBS: dict[str, Json] = {
    "poll": {"available_capacity": 1},
    "start": {"task_id": "t", "lease": "l"},
    "extend": {"task_id": "t", "lease": "l", "seconds": 1},
    "progress": {"task_id": "t", "lease": "l", "progress_percent": 1},
    "result": {"task_id": "t", "lease": "l", "status": "completed"},
    "heartbeat": {},
    "sync": {"available_capacity": 1},
}
OF_A_LEASE: dict[str, Json] = {
    "start": {},
    "extend": {"seconds": 1},
    "progress": {"progress_percent": 1},
    "result": {"status": "completed", "result": 1},
}


async def _asleep(service: Service, count: int = 1) -> None:
    async def is_so() -> bool:
        return service.wakeups.sleeping_count >= count

    await until(is_so)


def _poll_soon(bench: Bench, worker_id: str, **fields: Any) -> asyncio.Task[Json]:
    return asyncio.create_task(bench.poll(worker_id, wait_seconds=30, **fields))


async def test_registering_gives_an_id_and_the_rhythm(bench: Bench, kit: Kit) -> None:
    answer = await bench.call("POST", "/internal/workers/register", {"capacity": 5, "name": "mill", "version": "1.2"})

    assert answer["worker_id"].startswith("mill-")
    assert answer["heartbeat_interval_ms"] == kit.settings.leases.heartbeat_timeout_ms // 3
    assert answer["poll_interval_ms"] > 0
    assert (await bench.register(name="mill")) != answer["worker_id"]


async def test_a_whole_life_by_single_calls(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register(task_types=["resize"], capabilities=["gpu"], capacity=2)
    task_id = await bench.submit("resize", parameters={"width": 640}, required_capabilities=["gpu"], timeout_seconds=60)

    task = await bench.claimed(worker_id)
    assigned = await bench.read(task_id)
    begun = await bench.tell(worker_id, "start", task)
    executing = await bench.read(task_id)
    await bench.tell(worker_id, "progress", task, progress_percent=45, status_message="half | way\nthere")
    progressed = await bench.read(task_id)
    done = await bench.tell(worker_id, "result", task, status="completed", result={"ok": [1, 2]})
    completed = await bench.read(task_id)

    assert (task["task_id"], task["task_type"], task["parameters"]) == (task_id, "resize", {"width": 640})
    assert (task["attempt"], task["timeout_seconds"], task["traceparent"]) == (1, 60, None)
    assert (assigned["status"], assigned["assigned_worker_id"]) == ("assigned", worker_id)
    assert begun["acknowledged"]
    assert (executing["status"], executing["visible_at"]) == ("executing", begun["visible_at"])
    assert progressed["progress"] == {"percent": 45, "message": "half | way\nthere"}
    assert (done["acknowledged"], done["status"]) == (True, "completed")
    assert (completed["status"], completed["result"]) == ("completed", {"ok": [1, 2]})
    assert completed["created_at"] <= completed["assigned_at"] <= completed["started_at"] <= completed["completed_at"]
    assert await bench.call("DELETE", f"/internal/workers/{worker_id}") == {"released": 0}


async def test_a_whole_life_by_sync(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register(capacity=3)
    ids = [await bench.submit() for _ in range(3)]

    first = await bench.sync(worker_id, available_capacity=3, poll_id="p1")
    a, b, c = first["tasks"]
    second = await bench.sync(
        worker_id,
        starts=[held(a), held(b), held(c)],
        progress=[{**held(a), "progress_percent": 10}],
        extends=[{**held(b), "seconds": 900}],
        releases=[held(c)],
    )
    third = await bench.sync(
        worker_id,
        results=[
            {**held(b), "status": "failed", "error": {"message": "no", "retriable": False}},
            {**held(a), "status": "completed", "result": 7},
            {**held(c), "status": "completed", "result": 8},
        ],
        available_capacity=1,
    )

    assert [task["task_id"] for task in first["tasks"]] == ids
    assert (first["outcomes"], first["cancel"], first["should_drain"]) == ([], [], False)
    assert [(row["task_id"], row["ok"]) for row in second["outcomes"]] == [
        *((task_id, True) for task_id in ids),
        (ids[0], True),
        (ids[1], True),
        (ids[2], True),
    ]
    assert [(row["task_id"], row["ok"]) for row in third["outcomes"]] == [
        (ids[1], True),
        (ids[0], True),
        (ids[2], False),
    ]
    assert third["outcomes"][2]["problem"]["type"].endswith("/stale-lease")
    assert [task["task_id"] for task in third["tasks"]] == [ids[2]]
    states = [(await bench.read(task_id))["status"] for task_id in ids]
    assert states == ["completed", "failed", "assigned"]


async def test_a_life_without_a_start(bench: Bench) -> None:
    worker_id = await bench.register()
    ids = [await bench.submit(timeout_seconds=60) for _ in range(2)]

    (first,) = (await bench.poll(worker_id, poll_id="p1", start_claimed=True))["tasks"]
    begun = await bench.read(ids[0])
    done = [{**held(first), "status": "completed", "result": 1}]
    answer = await bench.sync(worker_id, results=done, available_capacity=1, poll_id="p2", start_claimed=True)

    assert (first["task_id"], first["status"]) == (ids[0], "executing")
    assert (begun["status"], begun["started_at"], begun["visible_at"]) == (
        "executing",
        begun["assigned_at"],
        first["visible_at"],
    )
    assert answer["outcomes"] == [{"task_id": ids[0], "ok": True}]
    assert [(task["task_id"], task["status"]) for task in answer["tasks"]] == [(ids[1], "executing")]
    assert [(await bench.read(task_id))["status"] for task_id in ids] == ["completed", "executing"]


@pytest.mark.parametrize("call", ["poll", "sync"])
async def test_starting_what_is_claimed_needs_a_poll_id_and_does_nothing_without(
    bench: Bench, http: httpx.AsyncClient, kit: Kit, call: str
) -> None:
    worker_id = await bench.register(capacity=2)
    task_id = await bench.submit()
    await bench.submit()
    task = await bench.claimed(worker_id)
    await bench.tell(worker_id, "start", task)
    before = await kit.dump()

    done = {"results": [{**held(task), "status": "completed"}]} if call == "sync" else {}
    body = {"available_capacity": 1, "start_claimed": True, **done}
    answer = await http.post(f"/internal/workers/{worker_id}/{call}", json=body)

    assert [error["pointer"] for error in assert_problem(answer, 422)["errors"]] == ["/poll_id"]
    assert await kit.dump() == before
    assert (await bench.read(task_id))["status"] == "executing"


async def test_a_sync_is_a_heartbeat_unless_it_only_starts_what_was_just_claimed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers wait for their start, and the claim before it was a sign of life."""
    beats, heartbeat = list[str](), Fleet.heartbeat

    async def noted(self: Fleet, worker_id: str, health: bytes = b"") -> Heartbeat:
        beats.append(worker_id)
        return await heartbeat(self, worker_id, health)

    monkeypatch.setattr(Fleet, "heartbeat", noted)
    worker_id = await bench.register()
    await bench.submit()
    task = await bench.claimed(worker_id)

    started = await bench.sync(worker_id, starts=[held(task)])
    beats_of_starting = list(beats)
    settled = await bench.sync(worker_id, results=[{**held(task), "status": "completed", "result": 1}])

    assert [outcome["ok"] for outcome in (*started["outcomes"], *settled["outcomes"])] == [True, True]
    assert (beats_of_starting, beats) == ([], [worker_id])


async def test_a_repeated_poll_gets_what_it_was_given_and_no_more(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit()
    await bench.submit()

    once = await bench.poll(worker_id, poll_id="p1")
    again = await bench.poll(worker_id, poll_id="p1")
    another = await bench.poll(worker_id, poll_id="p2")

    assert [held(task) for task in again["tasks"]] == [held(task) for task in once["tasks"]]
    assert another["tasks"][0]["task_id"] != once["tasks"][0]["task_id"]


async def test_an_empty_poll_answers_at_once(bench: Bench) -> None:
    worker_id = await bench.register()

    answer = await asyncio.wait_for(bench.poll(worker_id), 60)

    assert answer == {"tasks": [], "cancel": [], "should_drain": False}


async def test_a_waiting_poll_is_answered_when_its_time_is_up(bench: Bench) -> None:
    worker_id = await bench.register()
    began = asyncio.get_running_loop().time()

    answer = await bench.poll(worker_id, wait_seconds=0.3)

    assert answer["tasks"] == []
    assert asyncio.get_running_loop().time() - began >= 0.29


@pytest.mark.parametrize("call", ["poll", "sync"])
async def test_a_submission_wakes_a_waiting_poll(bench: Bench, service: Service, call: str) -> None:
    worker_id = await bench.register()
    waiting = asyncio.create_task(
        bench.call("POST", f"/internal/workers/{worker_id}/{call}", {"available_capacity": 1, "wait_seconds": 30})
    )
    await _asleep(service)

    task_id = await bench.submit()

    assert [task["task_id"] for task in (await asyncio.wait_for(waiting, 25))["tasks"]] == [task_id]


async def test_a_cancel_wakes_the_holders_poll_and_shuts_its_result_out(bench: Bench, service: Service) -> None:
    worker_id = await bench.register(capacity=2)
    task_id = await bench.submit()
    task = await bench.started(worker_id)
    waiting = _poll_soon(bench, worker_id)
    await _asleep(service)

    cancelled = await bench.call("DELETE", f"/api/v1/tasks/{task_id}")

    assert (cancelled["was_executing"], cancelled["worker_notified"]) == (True, True)
    assert (await asyncio.wait_for(waiting, 25))["cancel"] == [task_id]
    late = await bench.try_tell(worker_id, "result", task, status="completed", result=1)
    assert assert_problem(late, 409)["state"] == "cancelled"


async def test_a_heartbeat_says_what_to_stop(bench: Bench) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit()
    await bench.started(worker_id)
    await bench.call("DELETE", f"/api/v1/tasks/{task_id}")

    beat = await bench.call(
        "POST",
        f"/internal/workers/{worker_id}/heartbeat",
        {"current_load": 1, "status": "active", "health": {"memory_usage_percent": 12.5, "cpu_usage_percent": 3}},
    )

    assert beat == {"acknowledged": True, "should_drain": False, "cancel": [task_id]}


async def test_a_heartbeat_may_be_empty(http: httpx.AsyncClient, bench: Bench) -> None:
    worker_id = await bench.register()

    answer = await http.post(f"/internal/workers/{worker_id}/heartbeat")

    assert answer.json() == {"acknowledged": True, "should_drain": False, "cancel": []}


@pytest.mark.parametrize("verb", OF_A_LEASE)
@pytest.mark.parametrize("why", ["a made-up lease", "another worker", "handed back"])
async def test_a_lease_that_does_not_hold_is_refused_and_changes_nothing(
    bench: Bench, kit: Kit, verb: str, why: str
) -> None:
    worker_id, other_id = await bench.register(), await bench.register()
    await bench.submit()
    task = await bench.claimed(worker_id)
    if verb != "start":
        await bench.tell(worker_id, "start", task)
    if why == "handed back":
        await bench.sync(worker_id, releases=[held(task)])
    before = await kit.dump()

    stale = {**task, "lease": "0" * 32} if why == "a made-up lease" else task
    sender = other_id if why == "another worker" else worker_id
    answer = await bench.try_tell(sender, verb, stale, **OF_A_LEASE[verb])

    expected = "queued" if why == "handed back" else "assigned" if verb == "start" else "executing"
    problem = assert_problem(answer, 409, "stale-lease")
    assert (problem["state"], problem["task_id"]) == (expected, task["task_id"])
    assert await kit.dump() == before


async def test_a_result_said_twice_is_acknowledged_twice(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit()
    task = await bench.started(worker_id)

    answers = [await bench.tell(worker_id, "result", task, status="completed", result=1) for _ in range(2)]

    assert [answer["status"] for answer in answers] == ["completed", "completed"]


async def test_an_extension_moves_the_deadline(bench: Bench) -> None:
    worker_id = await bench.register()
    await bench.submit(timeout_seconds=10)
    task = await bench.claimed(worker_id)
    begun = await bench.tell(worker_id, "start", task)

    extended = await bench.tell(worker_id, "extend", task, seconds=120)

    moved = datetime.fromisoformat(extended["visible_at"]) - datetime.fromisoformat(begun["visible_at"])
    assert timedelta(seconds=100) < moved < timedelta(seconds=130)


async def test_a_retriable_failure_waits_for_its_retry_with_its_error(bench: Bench) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit()
    task = await bench.started(worker_id)
    error = {"message": "no route", "code": "NET", "retriable": True, "details": {"n": 1}}

    answer = await bench.tell(worker_id, "result", task, status="failed", error=error)

    kept = await bench.read(task_id)
    assert answer["status"] == "queued"
    assert (kept["status"], kept["retry_count"], kept["error"], kept["errors"]) == ("queued", 1, error, [error])
    assert kept["visible_at"] > kept["created_at"]
    assert (await bench.poll(worker_id))["tasks"] == []


async def test_a_task_given_up_by_its_worker_is_a_dead_letter_at_once(bench: Bench) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit()
    task = await bench.started(worker_id)

    answer = await bench.tell(worker_id, "result", task, status="discarded", error={"message": "nobody wants it"})

    kept = await bench.read(task_id)
    assert answer["status"] == kept["status"] == "dead_letter"
    assert kept["reason"] == "discarded"
    assert kept["error"]["message"] == "nobody wants it"


async def test_a_failure_that_is_not_retriable_is_final_until_retried_by_hand(bench: Bench) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit()
    task = await bench.started(worker_id)

    answer = await bench.tell(
        worker_id, "result", task, status="failed", error={"message": "no such file", "retriable": False}
    )
    await bench.call("POST", f"/api/v1/tasks/{task_id}/retry")

    assert answer["status"] == "failed"
    again = await bench.claimed(worker_id)
    assert (again["task_id"], again["lease"] != task["lease"]) == (task_id, True)


async def test_the_last_failure_makes_a_dead_letter(bench: Bench) -> None:
    worker_id = await bench.register()
    task_id = await bench.submit(max_retries=0)

    answer = await bench.tell(
        worker_id, "result", await bench.started(worker_id), status="failed", error={"message": "no"}
    )

    assert answer["status"] == (await bench.read(task_id))["status"] == "dead_letter"


async def test_leaving_hands_everything_back_free_of_charge(http: httpx.AsyncClient, bench: Bench) -> None:
    leaver, stayer = await bench.register(capacity=2), await bench.register()
    ids = {await bench.submit(), await bench.submit()}
    await bench.started(leaver)
    await bench.claimed(leaver)

    answer = await bench.call("DELETE", f"/internal/workers/{leaver}")

    assert answer == {"released": 2}
    assert {task["task_id"] for task in (await bench.poll(stayer, available_capacity=2))["tasks"]} == ids
    assert [(await bench.read(task_id))["retry_count"] for task_id in ids] == [0, 0]
    assert_problem(await http.post(f"/internal/workers/{leaver}/heartbeat"), 404, "unknown-worker")


@pytest.mark.parametrize("verb", VERBS)
async def test_an_unknown_worker_is_told_to_register(http: httpx.AsyncClient, kit: Kit, verb: str) -> None:
    before = await kit.dump()

    answer = await http.post(f"/internal/workers/nobody/{verb}", json=VERBS[verb])

    problem = assert_problem(answer, 404)
    assert problem["type"].endswith("/task-not-found" if "task_id" in VERBS[verb] else "/unknown-worker")
    assert await kit.dump() == before


async def test_a_draining_worker_is_told_and_gets_nothing(bench: Bench, kit: Kit) -> None:
    worker_id = await bench.register(capacity=2)
    await bench.submit()
    task = await bench.started(worker_id)
    await bench.submit()

    await kit.fleet.drain(worker_id)
    poll = await bench.poll(worker_id)
    sync = await bench.sync(worker_id, available_capacity=1)
    beat = await bench.call("POST", f"/internal/workers/{worker_id}/heartbeat", {})

    assert [answer["should_drain"] for answer in (poll, sync, beat)] == [True] * 3
    assert (poll["tasks"], sync["tasks"]) == ([], [])
    assert (await bench.tell(worker_id, "result", task, status="completed", result=1))["status"] == "completed"


async def test_a_poll_that_names_capabilities_still_gets_only_its_types(bench: Bench) -> None:
    """SPEC 5: a worker declares its task types; a poll may say what else it can do at the moment."""
    worker_id = await bench.register(task_types=["crawl"], capabilities=["gpu"])
    await bench.submit("resize")

    answer = await bench.poll(worker_id, capabilities=["gpu"])

    assert answer["tasks"] == []


async def test_a_poll_with_fewer_capabilities_leaves_what_needs_them(bench: Bench) -> None:
    worker_id = await bench.register(capabilities=["gpu"])
    await bench.submit(required_capabilities=["gpu"])

    without = await bench.poll(worker_id, capabilities=[])
    declared = await bench.poll(worker_id)

    assert without["tasks"] == []
    assert len(declared["tasks"]) == 1


async def test_a_closing_service_answers_waiting_polls_empty_and_is_not_ready(
    http: httpx.AsyncClient, bench: Bench, service: Service
) -> None:
    worker_id = await bench.register()
    waiting = _poll_soon(bench, worker_id)
    await _asleep(service)

    service.close()

    assert (await asyncio.wait_for(waiting, 25))["tasks"] == []
    closing = await http.get("/readyz")
    assert_problem(closing, 503, "service-closing")
    assert closing.headers["retry-after"]
    assert (await http.get("/livez")).status_code == 200
