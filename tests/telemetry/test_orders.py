"""A retry, replay or cancellation by hand is found from its request's trace, and its request from the task's."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench, held
from tests.api.replication import Replication
from tests.stores import StoreUnderTest
from tests.telemetry.listening import follow
from tests.telemetry.recording import Recording
from tests.telemetry.test_requests import http, service
from tideq.api.app import create_app
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.persistence.database import Database
from tideq.persistence.schema.migrations import migrate
from tideq.persistence.settings import HistorySettings
from tideq.queue_core.engine.journal import JournalStore
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.tracing import Span
from tideq.workers.monitor.journal.follower import Follower
from tideq.workers.monitor.journal.spans import LifeSpans

__all__ = ["http", "service"]

TASKS = "/api/v1/tasks"
CALLER = "00-" + "c" * 32 + "-" + "d" * 16 + "-01"


@pytest.fixture
async def journal(service: Service, tracing: Recording, queue_name: str) -> AsyncIterator[Follower]:
    """A monitor that tells lives beside the requests."""
    follower = await _journal_of(service, tracing, queue_name)
    yield follower
    await follow(follower)


async def _journal_of(service: Service, tracing: Recording, queue_name: str) -> Follower:
    (part,) = service.engine.parts
    follower = Follower(JournalStore(service.client, part.scripts, part.keys), [LifeSpans(tracing, queue_name)])
    await follower.step()
    return follower


@pytest.mark.parametrize(("verb", "path"), [("retry", f"{TASKS}/{{}}/retry"), ("replay", "/api/v1/dlq/{}/replay")])
async def test_a_new_life_links_to_what_began_it_and_that_to_its_request_and_back(
    http: httpx.AsyncClient, tracing: Recording, journal: Follower, queue_name: str, verb: str, path: str
) -> None:
    task_id = await _dead(Bench(http))

    answer = await http.post(path.format(task_id), headers={"traceparent": CALLER})
    await http.delete(f"{TASKS}/{task_id}")
    await follow(journal)

    order, request = _named(tracing, f"{verb} {queue_name}"), _asked_by_caller(tracing)
    *_, life = [span for span in tracing.spans if span.name == "task.lifecycle"]
    assert answer.status_code == 200
    assert request.attributes["messaging.message.id"] == task_id
    assert request.attributes["url.path"] == path.format(task_id)
    assert (request.links, order.links) == ((order.context,), (request.context,))
    assert [link.span_id for link in life.links] == [order.context.span_id]
    assert life.context.trace_id == order.context.trace_id != request.context.trace_id


async def test_a_new_life_that_an_api_without_tracing_began_links_to_nothing(
    http: httpx.AsyncClient,
    service: Service,
    tracing: Recording,
    journal: Follower,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task_id = await _dead(Bench(http))
    with monkeypatch.context() as patch:
        patch.setattr(service, "tracing", None)
        assert (await http.post(f"/api/v1/dlq/{task_id}/replay")).status_code == 200
    await http.delete(f"{TASKS}/{task_id}")
    await follow(journal)

    *_, life = [span for span in tracing.spans if span.name == "task.lifecycle"]
    assert life.links == ()


async def test_lives_that_a_bulk_replay_begins_link_to_an_order_each_and_that_to_the_request(
    store: StoreUnderTest, database_url: str, tracing: Recording, queue_name: str
) -> None:
    history, queue = HistorySettings(database_url=database_url), QueueSettings(queue_name=queue_name)
    async with Database(database_url, queue_name) as database:
        await migrate(database)
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=queue, history=history)
    async with open_service(settings, tracing) as service:
        app: Any = create_app(service)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tideq") as http:
            journal = await _journal_of(service, tracing, queue_name)
            task_ids = {await _dead(Bench(http)) for _ in range(3)}
            replication = Replication(service)
            await replication.start()
            await replication.done()

            answer = await http.post("/api/v1/dlq/replay", json={"filter": {}}, headers={"traceparent": CALLER})
            for task_id in task_ids:
                await http.delete(f"{TASKS}/{task_id}")
            await follow(journal)
            await replication.stop()

    request = _asked_by_caller(tracing)
    orders = [span for span in tracing.spans if span.name == f"replay {queue_name}"]
    lives = [span for span in tracing.spans if span.name == "task.lifecycle"][3:]
    assert answer.json()["replayed"] == 3
    assert {span.attributes["messaging.message.id"] for span in orders} == task_ids
    assert {span.links for span in orders} == {(request.context,)}
    assert {span.links for span in lives} == {(span.context,) for span in orders}
    assert (request.links, request.attributes["messaging.batch.message_count"], tracing.charged) == ((), 3, 3)


async def test_a_cancellation_is_linked_with_its_request_both_ways(
    http: httpx.AsyncClient, tracing: Recording, queue_name: str
) -> None:
    task_id = (await http.post(TASKS, json={"task_type": "a"})).json()["task_id"]

    await http.delete(f"{TASKS}/{task_id}", headers={"traceparent": CALLER})

    order, request = _named(tracing, f"cancel {queue_name}"), _asked_by_caller(tracing)
    assert (request.links, order.links) == ((order.context,), (request.context,))
    assert request.attributes["messaging.message.id"] == order.attributes["messaging.message.id"] == task_id


async def test_what_is_refused_tells_of_the_task_and_links_to_nothing(
    http: httpx.AsyncClient, tracing: Recording
) -> None:
    task_id = (await http.post(TASKS, json={"task_type": "a"})).json()["task_id"]

    answer = await http.post(f"{TASKS}/{task_id}/retry", headers={"traceparent": CALLER})

    request = _asked_by_caller(tracing)
    assert answer.status_code == 409
    assert (request.attributes["messaging.message.id"], request.links) == (task_id, ())


async def test_a_task_that_is_not_traced_gets_no_span_of_an_order(http: httpx.AsyncClient, tracing: Recording) -> None:
    tracing.samples_roots = False
    task_id = (await http.post(TASKS, json={"task_type": "a"})).json()["task_id"]

    await http.delete(f"{TASKS}/{task_id}", headers={"traceparent": CALLER})

    assert tracing.names == [f"DELETE {TASKS}/{{task_id}}"]


async def test_a_task_has_a_whole_tree_in_every_state(
    http: httpx.AsyncClient, tracing: Recording, journal: Follower
) -> None:
    """What Jaeger would say of it is asked when the test ends, of everything told until then."""
    bench = Bench(http)
    worker_id = await bench.register(capacity=100)
    body = {"task_type": "a", "backoff": {"base_seconds": 3_600, "multiplier": 1, "cap_seconds": 3_600}}
    for delay in (0, 3_600):
        await http.post(TASKS, json={**body, "delay_seconds": delay})
    waiting_for_start, running, backing_off = [await _claimed(bench, worker_id, body) for _ in range(3)]
    for task in (running, backing_off):
        await bench.sync(worker_id, starts=[held(task)])
    await bench.sync(worker_id, results=[{**held(backing_off), "status": "failed", "error": {"message": "no"}}])

    await follow(journal)

    states = [
        (await http.get(f"{TASKS}/{task['task_id']}")).json()["status"]
        for task in (waiting_for_start, running, backing_off)
    ]
    assert states == ["assigned", "executing", "queued"]
    assert "task.executing" in tracing.names
    assert "task.lifecycle" not in tracing.names


async def _claimed(bench: Bench, worker_id: str, body: Mapping[str, object]) -> dict[str, Any]:
    await bench.call("POST", TASKS, dict(body))
    return await bench.claimed(worker_id)


async def _dead(bench: Bench) -> str:
    worker_id = await bench.register()
    task = await _claimed(bench, worker_id, {"task_type": "a", "max_retries": 0})
    failed = {**held(task), "status": "failed", "error": {"message": "no"}}
    await bench.sync(worker_id, starts=[held(task)], results=[failed])
    return task["task_id"]


def _named(tracing: Recording, name: str) -> Span:
    (span,) = [span for span in tracing.spans if span.name == name]
    return span


def _asked_by_caller(tracing: Recording) -> Span:
    (span,) = [span for span in tracing.spans if span.parent_id == "d" * 16]
    return span
