"""/metrics: what Prometheus reads, checked with Prometheus's own parser."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, until
from tests.api.listening import listening
from tests.api.running import Running
from tests.contract.situations import complete_all, started_count, submit_count, task_in
from tests.kit import Kit
from tests.observability.scrape import PATH, Scrape, scrape
from tests.stores import free_port
from tideq.api.app import create_app
from tideq.api.edge import auth as auth_module
from tideq.api.service import Service
from tideq.api.settings import Auth, ServiceSettings
from tideq.persistence.recovery.open_store import OpenStore
from tideq.queue_core.engine import assemble_engine
from tideq.queue_core.samples import MAX_TASK_TYPES, OTHER, TypeNames
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.states import TaskState
from tideq.queue_core.store.connect import connect, connect_listener
from tideq.queue_core.telemetry.metrics import METRICS

STORE_GAUGES = {
    "tideq_queue_tasks",
    "tideq_queue_priority_tasks",
    "tideq_queue_type_tasks",
    "tideq_queue_oldest_age_seconds",
    "tideq_queue_age_seconds",
    "tideq_queue_due_tasks",
    "tideq_queue_paused",
    "tideq_queue_type_paused",
    "tideq_dead_letters",
    "tideq_outbox_entries",
    "tideq_workers",
    "tideq_worker_slots",
    "tideq_last_minute_executions",
    "tideq_last_hour_recoveries",
}


async def test_the_queue_is_told_as_it_is(http: httpx.AsyncClient, bench: Bench, kit: Kit) -> None:
    await kit.worker(capacity=7)
    await task_in(kit, TaskState.DEAD_LETTER)
    await complete_all(kit, await started_count(kit, 2))
    await started_count(kit, 3)
    await submit_count(kit, 4, "crop", priority="high")
    await submit_count(kit, 1, "blur", priority="low", delay_ms=1_000)
    await kit.clock.advance(120_000)
    await kit.fleet.heartbeat("w1")

    told = await scrape(http)

    assert told.values("tideq_queue_tasks", "state") == {"queued": 5, "assigned": 0, "executing": 3}
    assert told.values("tideq_queue_priority_tasks", "priority") == {"high": 4, "medium": 0, "low": 1}
    assert told.values("tideq_queue_type_tasks", "task_type") == {"crop": 4, "blur": 1}
    ended = told.families["tideq_ended_tasks"].samples
    kinds = {(each.labels["task_type"], each.labels["state"]): each.value for each in ended}
    assert kinds == {("resize", "completed"): 2, ("resize", "dead_letter"): 1}
    assert told.values("tideq_workers", "state") == {"active": 1, "draining": 0, "unhealthy": 0, "dead": 0}
    assert told.values("tideq_worker_slots", "kind") == {"used": 3, "total": 7}
    ages = told.values("tideq_queue_oldest_age_seconds", "priority")
    assert 60 <= ages["high"] <= 180
    assert 60 <= ages["low"] <= 180
    assert ages["medium"] == 0
    assert (told.value("tideq_queue_due_tasks"), told.value("tideq_dead_letters")) == (1, 1)
    assert told.value("tideq_outbox_entries") == await kit.client.xlen(kit.keys.key("outbox"))
    assert told.value("tideq_last_hour_recoveries", kind="dead_letters") == 1
    assert told.value("tideq_store_up") == 1
    assert told.value("tideq_build_info") == 1


async def test_pauses_are_told(http: httpx.AsyncClient, kit: Kit) -> None:
    before = await scrape(http)
    await kit.controls.pause()
    await kit.controls.pause("crop")
    await kit.controls.limit("blur", max_executing=1)

    told = await scrape(http)

    assert (before.value("tideq_queue_paused"), told.value("tideq_queue_paused")) == (0, 1)
    assert told.values("tideq_queue_type_paused", "task_type") == {"crop": 1}


async def test_requests_are_counted_by_route_and_never_by_path(http: httpx.AsyncClient, bench: Bench) -> None:
    task_id = await bench.submit()
    await bench.read(task_id)
    await http.get("/api/v1/tasks/no-such-task")
    await http.post("/api/v1/tasks", content=b"nonsense")

    told = await scrape(http)

    def count(method: str, route: str, status: str) -> float:
        return told.value("tideq_http_requests_total", method=method, route=route, status=status)

    assert (count("POST", "/api/v1/tasks", "2xx"), count("POST", "/api/v1/tasks", "4xx")) == (1, 1)
    assert (count("GET", "/api/v1/tasks/{task_id}", "2xx"), count("GET", "/api/v1/tasks/{task_id}", "4xx")) == (1, 1)
    assert not [route for route in told.labels("route") if task_id in route or "no-such-task" in route]
    durations = "tideq_http_request_duration_seconds"
    assert told.value(f"{durations}_count", route="/api/v1/tasks") == 2
    assert told.value(f"{durations}_bucket", route="/api/v1/tasks", le="+Inf") == 2
    assert told.value(f"{durations}_sum", route="/api/v1/tasks") > 0


async def test_submissions_and_claims_are_counted(http: httpx.AsyncClient, bench: Bench) -> None:
    worker_id = await bench.register(capacity=9)
    await bench.submit(idempotency_key="k")
    await bench.submit(idempotency_key="k")
    await bench.call("POST", "/api/v1/tasks/batch", {"tasks": [{"task_type": "crop"}] * 4})
    await bench.poll(worker_id, available_capacity=3)
    await bench.sync(worker_id, available_capacity=1)
    await bench.poll(await bench.register(task_types=["nothing"]))

    told = await scrape(http)

    assert told.value("tideq_tasks_submitted_total") == 5
    assert told.value("tideq_tasks_claimed_total") == 4
    assert told.value("tideq_claim_duration_seconds_count") == 3
    assert 0 < told.value("tideq_claim_duration_seconds_sum") < 60


async def test_waiting_polls_are_told(http: httpx.AsyncClient, bench: Bench, service: Service) -> None:
    worker_id = await bench.register()
    waiting = asyncio.create_task(bench.poll(worker_id, wait_seconds=30))

    async def is_asleep() -> bool:
        return service.wakeups.sleeping_count == 1

    await until(is_asleep)

    assert (await scrape(http)).value("tideq_waiting_polls") == 1
    service.close()
    await waiting
    assert (await scrape(http)).value("tideq_waiting_polls") == 0


async def test_listeners_are_told(server: Running, remote: Bench) -> None:
    async with listening(remote.http), listening(remote.http):
        during = await scrape(remote.http)

    async def is_over() -> bool:
        return (await scrape(remote.http)).value("tideq_event_listeners") == 0

    await until(is_over)
    assert during.value("tideq_event_listeners") == 2
    assert during.value("tideq_event_listeners_cut_off_total") == 0


async def test_refusals_at_the_door_are_counted(service: Service, kit: Kit) -> None:
    """Who has no key is turned away before the route is asked, and counted there all the same."""
    service.authenticator._auth_disabled = False  # pyright: ignore[reportPrivateUsage]
    app: Any = create_app(service)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as http:
        answer = await http.get("/api/v1/queue/stats")

    assert answer.status_code == 401
    assert sum(service.metrics.requests["/api/v1/queue/stats", "GET", 4].counts) == 1


async def test_metrics_are_answered_without_a_store() -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    client: Any = connect(url)
    store = OpenStore(client, assemble_engine(client, QueueSettings()), None, None, client)
    app: Any = create_app(Service(ServiceSettings(auth="off", redis_url=url), store, lambda: connect_listener(url)))

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as http:
        told = await scrape(http)
    await client.aclose()

    assert told.value("tideq_store_up") == 0
    assert told.value("tideq_tasks_submitted_total") == 0
    assert not STORE_GAUGES & set(told.families)


class TestWithKeys:
    @pytest.fixture
    def auth(self) -> Auth:
        return "keys"

    async def test_a_key_known_before_the_store_went_away_still_reads_metrics(
        self, service: Service, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(auth_module, "CACHE_SECONDS", 0.0)
        key = await service.access_keys.create("prometheus", "viewer", 0)
        headers = {"Authorization": f"Bearer {key}"}
        before = Scrape((await http.get(PATH, headers=headers)).text)
        gone: Any = connect(f"redis://127.0.0.1:{free_port()}")
        monkeypatch.setattr(service.access_keys, "_client", gone)
        monkeypatch.setattr(service.engine.scripts, "_client", gone)

        after = await http.get(PATH, headers=headers)
        stranger = await http.get(PATH, headers={"Authorization": f"Bearer tq_{'0' * 12}_{'A' * 43}"})

        assert (before.value("tideq_store_up"), Scrape(after.text).value("tideq_store_up")) == (1, 0)
        assert stranger.status_code == 401
        await gone.aclose()


async def test_names_are_as_prometheus_wants_them(http: httpx.AsyncClient, bench: Bench) -> None:
    await bench.submit()

    told = await scrape(http)

    assert set(told.families) >= STORE_GAUGES
    for family in told.families.values():
        assert family.name.startswith("tideq_")
        assert family.documentation
        assert not family.name.endswith(("_created", "_ms", "_milliseconds", "_minutes"))
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
    allowed = {label for metric in METRICS.values() for label in metric.labels}
    assert {label for sample in told.samples for label in sample.labels} <= allowed | {"le", "queue"}


async def test_no_text_of_users_but_task_types_becomes_a_label(http: httpx.AsyncClient, bench: Bench) -> None:
    worker_id = await bench.register(name="hostile", version="hostile", host="hostile", capabilities=["hostile"])
    await bench.submit("resize", tags={"hostile": "hostile"}, client_id="hostile", parameters={"hostile": 1})
    await bench.call("POST", "/api/v1/queue/pause", {"reason": "hostile"})
    await http.get("/hostile")
    await http.get("/api/v1/tasks/hostile?hostile=1")

    told = await scrape(http)

    assert not [sample for sample in told.samples if any("hostile" in value for value in sample.labels.values())]
    assert worker_id not in (await http.get(PATH)).text


async def test_task_types_are_told_by_name_up_to_a_number(http: httpx.AsyncClient, kit: Kit) -> None:
    for number in range(MAX_TASK_TYPES + 30):
        await submit_count(kit, 2 if number < 5 else 1, f"type-{number:03d}")

    told = (await scrape(http)).values("tideq_queue_type_tasks", "task_type")

    assert len(told) == MAX_TASK_TYPES + 1
    assert told[OTHER] == 30
    assert sum(told.values()) == MAX_TASK_TYPES + 30 + 5


def test_a_type_that_is_called_other_is_counted_with_the_others() -> None:
    types = TypeNames(most=1)

    told = types.summed({OTHER: 9, "a": 5, "b": 3, "c": 1}.items())

    assert told == {(OTHER,): 13, ("a",): 5}


def test_a_type_keeps_its_name_however_few_of_it_there_are() -> None:
    types = TypeNames(most=1)
    types.summed({"a": 5}.items())

    told = types.summed({"a": 1, "b": 900}.items())

    assert told == {("a",): 1, (OTHER,): 900}
