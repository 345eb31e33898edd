"""Over HTTP: who is told that a worker gets no tasks of a type because it failed at most of its last ones."""

from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, Json
from tests.kit import Kit
from tests.observability.scrape import scrape
from tideq.api.schemas.blocked_types import ON_TRIAL, OPEN

FAILURES = 5


async def fail_five(bench: Bench, worker_id: str, **error: Any) -> None:
    for _ in range(FAILURES):
        await bench.submit("crawl", max_retries=0)
        told = {"message": "no", "retriable": True, **error}
        await bench.tell(worker_id, "result", await bench.started(worker_id), status="failed", error=told)


async def blocked_types(bench: Bench, worker_id: str) -> list[Json]:
    fleet = (await bench.call("GET", "/api/v1/workers"))["workers"]
    return next(each["blocked_types"] for each in fleet if each["worker_id"] == worker_id)


@pytest.fixture
async def shut(bench: Bench) -> str:
    """A worker that gets no more of `crawl` for a minute, and `resize` as ever."""
    worker_id = await bench.register(task_types=["crawl", "resize"])
    await fail_five(bench, worker_id)
    return worker_id


async def test_explain_says_how_many_workers_are_held_back_until_when_and_how_many_serve(
    bench: Bench, shut: str
) -> None:
    await bench.register(task_types=["crawl"])
    await bench.register(task_types=["resize"])
    broken, healthy = await bench.submit("crawl"), await bench.submit("resize")
    ((until, reason),) = [(each["until"], each["reason"]) for each in await blocked_types(bench, shut)]

    told = await bench.call("GET", f"/api/v1/tasks/{broken}/explain")
    other = await bench.call("GET", f"/api/v1/tasks/{healthy}/explain")

    sentence = (
        f"1 of 2 active workers that serve it get no tasks of this type before {until}: "
        "most of their latest tasks of this type failed"
    )
    assert reason == OPEN
    assert (told["serving_workers"], told["blocked_by"]) == (1, [sentence])
    assert (other["serving_workers"], [each for each in other["blocked_by"] if "worker" in each]) == (2, [])


async def test_a_task_whose_only_worker_is_held_back_can_start_when_that_ends(bench: Bench, shut: str) -> None:
    task_id = await bench.submit("crawl")
    (circuit,) = await blocked_types(bench, shut)

    told = await bench.call("GET", f"/api/v1/tasks/{task_id}/explain")

    assert (told["serving_workers"], told["can_start_at"]) == (0, circuit["until"])
    assert not [each for each in told["blocked_by"] if "no active worker" in each]


async def test_a_task_whose_only_worker_is_on_trial_waits_for_the_results_of_its_trials(
    bench: Bench, kit: Kit, shut: str
) -> None:
    last = [await bench.submit("crawl") for _ in range(4)][-1]
    await kit.clock.advance(kit.settings.circuit.open_ms)

    async def explained() -> tuple[int, list[str], bool]:
        told = await bench.call("GET", f"/api/v1/tasks/{last}/explain")
        said = [each for each in told["blocked_by"] if "worker" in each]
        return told["serving_workers"], said, told["can_start_at"] is None

    def on_trial(left: int) -> list[str]:
        start = "1 of 1 active workers that serve it are on trial for this type"
        return [f"{start}, with {left} trial tasks left: their next results decide"]

    assert await explained() == (1, on_trial(3), False)
    assert len((await bench.poll(shut, available_capacity=2))["tasks"]) == 2
    assert await explained() == (1, on_trial(1), False)
    assert len((await bench.poll(shut, available_capacity=9))["tasks"]) == 1
    assert await explained() == (0, on_trial(0), True)
    assert not (await bench.poll(shut, available_capacity=9))["tasks"]


async def test_a_poll_a_sync_a_heartbeat_and_the_fleet_say_the_same(bench: Bench, shut: str) -> None:
    of_poll = (await bench.poll(shut))["blocked_types"]
    of_sync = (await bench.sync(shut, available_capacity=1))["blocked_types"]
    of_sync_without_a_claim = (await bench.sync(shut))["blocked_types"]
    of_heartbeat = (await bench.call("POST", f"/internal/workers/{shut}/heartbeat", {}))["blocked_types"]

    told = await blocked_types(bench, shut)
    assert [(each["task_type"], each["reason"]) for each in told] == [("crawl", OPEN)]
    assert of_poll == of_sync == of_sync_without_a_claim == of_heartbeat == told


async def test_a_worker_that_is_held_back_from_nothing_is_told_nothing(bench: Bench) -> None:
    worker_id = await bench.register()

    answers = [await bench.poll(worker_id), await bench.sync(worker_id)]

    assert all("blocked_types" not in answer for answer in answers)
    assert await blocked_types(bench, worker_id) == []


async def test_after_its_time_a_worker_is_on_trial(bench: Bench, kit: Kit, shut: str) -> None:
    await kit.clock.advance(kit.settings.circuit.open_ms)
    await bench.submit("crawl")
    assert (await bench.poll(shut))["tasks"]

    assert await blocked_types(bench, shut) == [{"task_type": "crawl", "until": None, "reason": ON_TRIAL}]


async def test_the_statistics_count_open_circuits_by_type(bench: Bench, shut: str) -> None:
    workers = (await bench.call("GET", "/api/v1/queue/stats"))["workers"]

    assert (workers["open_circuits"], workers["open_circuits_by_type"]) == (1, {"crawl": 1})


async def test_the_metrics_count_open_circuits_and_by_type(
    http: httpx.AsyncClient, bench: Bench, kit: Kit, shut: str
) -> None:
    """A worker on trial counts until its trials end well."""
    opened = await scrape(http)
    await kit.clock.advance(kit.settings.circuit.open_ms)
    on_trial = await scrape(http)
    for _ in range(3):
        await bench.submit("crawl")
        await bench.tell(shut, "result", await bench.started(shut), status="completed", result=1)
    closed = await scrape(http)

    told = [
        (each.value("tideq_open_circuits"), each.values("tideq_type_open_circuits", "task_type"))
        for each in (opened, on_trial, closed)
    ]
    assert told == [(1, {"crawl": 1}), (1, {"crawl": 1}), (0, {})]


@pytest.mark.parametrize(
    "error",
    [{"details": {"retry_requested": True}}, {"code": "RATE_LIMIT"}, {"code": "TEMPORARY_UNAVAILABLE"}],
    ids=["asked for", "rate limit", "unavailable"],
)
async def test_what_a_handler_reports_on_purpose_does_not_count(bench: Bench, error: Json) -> None:
    worker_id = await bench.register(task_types=["crawl"])

    await fail_five(bench, worker_id, **error)

    assert await blocked_types(bench, worker_id) == []


async def test_details_that_say_something_else_count(bench: Bench) -> None:
    worker_id = await bench.register(task_types=["crawl"])

    await fail_five(bench, worker_id, details={"retry_requested": False, "host": '"retry_requested":true'})

    assert [each["task_type"] for each in await blocked_types(bench, worker_id)] == ["crawl"]
