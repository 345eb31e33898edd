"""What the API traces: requests by their routes, submissions as sent, claims as received; and what it leaves alone."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.api.bench import Bench
from tests.stores import StoreUnderTest
from tests.telemetry.recording import Recording
from tideq.api.app import create_app
from tideq.api.service import Service, open_service
from tideq.api.settings import ServiceSettings
from tideq.queue_core.settings import QueueSettings
from tideq.queue_core.telemetry.spans import CLIENT, PRODUCER, SERVER
from tideq.queue_core.telemetry.trace_context import execution_span_id

TASKS = "/api/v1/tasks"
TRACE_ID, SUBMITTER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE_ID}-{SUBMITTER}-03", f"00-{TRACE_ID}-{SUBMITTER}-02"


@pytest.fixture
async def service(store: StoreUnderTest, queue_name: str, tracing: Recording) -> AsyncIterator[Service]:
    settings = ServiceSettings(auth="off", redis_url=store.url, queue=QueueSettings(queue_name=queue_name))
    async with open_service(settings, tracing) as service:
        await service.wakeups.wait_until_subscribed()
        yield service


@pytest.fixture
async def http(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    app: Any = create_app(service)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tideq") as client:
        yield client


async def test_a_span_is_named_by_the_route(http: httpx.AsyncClient, tracing: Recording) -> None:
    answer = await http.get(f"{TASKS}/0195546e-3c7a-7d21-9f04-00a1b2c3d4e5")

    (span,) = tracing.spans
    assert (span.name, span.kind, span.parent_id) == ("GET /api/v1/tasks/{task_id}", SERVER, "")
    assert span.attributes["http.response.status_code"] == answer.status_code == 404
    assert span.error is None


async def test_a_submission_hangs_under_its_request_and_its_task_under_it(
    http: httpx.AsyncClient, tracing: Recording, service: Service, queue_name: str
) -> None:
    answer = await http.post(TASKS, json={"task_type": "a"}, headers={"traceparent": SAMPLED, "baggage": "a=b"})

    task_id = answer.json()["task_id"]
    sent, request = tracing.spans
    assert (sent.name, sent.kind) == (f"send {queue_name}", PRODUCER)
    assert (request.parent_id, sent.parent_id) == (SUBMITTER, request.context.span_id)
    assert sent.attributes["messaging.message.id"] == task_id
    trace = (await service.engine.queue.read(task_id)).definition.trace
    assert trace is not None
    assert (trace.traceparent, trace.baggage) == (f"00-{TRACE_ID}-{sent.context.span_id}-03", "a=b")


async def test_a_batch_is_one_span_and_is_charged_for_all_its_tasks(
    http: httpx.AsyncClient, tracing: Recording
) -> None:
    await http.post(f"{TASKS}/batch", json={"tasks": [{"task_type": "a"}] * 100})

    assert tracing.spans[0].attributes["messaging.batch.message_count"] == 100
    assert (len(tracing.spans), tracing.charged) == (2, 99)


async def test_a_task_without_a_trace_gets_one_if_it_is_sampled(http: httpx.AsyncClient, tracing: Recording) -> None:
    sampled = (await http.post(TASKS, json={"task_type": "a"})).json()["task_id"]
    tracing.samples_roots = False
    unsampled = (await http.post(TASKS, json={"task_type": "a"})).json()["task_id"]

    traces = [(await http.get(f"{TASKS}/{task_id}")).json()["trace_id"] for task_id in (sampled, unsampled)]
    assert traces == [tracing.spans[0].context.trace_id, unsampled.replace("-", "")]
    assert len(tracing.spans) == 2


async def test_what_its_submitter_does_not_sample_is_not(http: httpx.AsyncClient, tracing: Recording) -> None:
    bench = Bench(http)
    answer = await http.post(TASKS, json={"task_type": "a"}, headers={"traceparent": UNSAMPLED})
    task = await bench.claimed(await bench.register())

    assert answer.is_success
    assert tracing.spans == []
    assert task["traceparent"].startswith(f"00-{TRACE_ID}-")
    assert task["traceparent"].endswith("-02")


async def test_a_claim_is_received_in_the_trace_of_each_task(
    http: httpx.AsyncClient, tracing: Recording, queue_name: str
) -> None:
    bench = Bench(http)
    await http.post(TASKS, json={"task_type": "a"}, headers={"traceparent": SAMPLED})
    sent, worker_id = tracing.spans[0], await bench.register()

    task = await bench.claimed(worker_id)

    (received,) = [span for span in tracing.spans if span.kind == CLIENT]
    assert (received.name, received.parent_id) == (f"receive {queue_name}", sent.context.span_id)
    assert received.attributes["messaging.client.id"] == worker_id
    assert task["traceparent"] == f"00-{TRACE_ID}-{execution_span_id(task['task_id'], 1)}-03"


async def test_tasks_of_one_batch_are_received_as_one(http: httpx.AsyncClient, tracing: Recording) -> None:
    bench = Bench(http)
    await http.post(f"{TASKS}/batch", json={"tasks": [{"task_type": "a"}] * 3})
    await bench.poll(await bench.register(capacity=10), available_capacity=10)

    (received,) = [span for span in tracing.spans if span.kind == CLIENT]
    assert received.attributes["messaging.batch.message_count"] == 3


async def test_polls_and_probes_begin_no_trace(http: httpx.AsyncClient, tracing: Recording) -> None:
    bench = Bench(http)
    await bench.poll(await bench.register())
    await http.get("/readyz")

    assert tracing.spans == []


async def test_every_request_is_metered_once_whether_it_is_traced_or_not(
    http: httpx.AsyncClient, tracing: Recording, service: Service
) -> None:
    await http.post(TASKS, json={"task_type": "a"})
    await http.get(f"{TASKS}/0195546e-3c7a-7d21-9f04-00a1b2c3d4e5")
    await http.post(TASKS, json={"task_type": "a", "priority": "none"})
    tracing.samples_roots = False
    await http.post(TASKS, json={"task_type": "a"})
    await http.get("/readyz")

    counted = {key: noted.count for key, noted in service.metrics.requests.items()}
    assert counted == {
        (TASKS, "POST", 2): 2,
        (f"{TASKS}/{{task_id}}", "GET", 4): 1,
        (TASKS, "POST", 4): 1,
        ("/readyz", "GET", 2): 1,
    }


async def test_an_unforeseen_error_is_told_as_one(
    http: httpx.AsyncClient, tracing: Recording, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(service.engine.queue, "submit", broken)
    answer = await http.post(TASKS, json={"task_type": "a"})

    request = tracing.spans[-1]
    assert (answer.status_code, request.attributes["http.response.status_code"]) == (500, 500)
    assert request.error is not None
    assert "secret" not in repr(tracing.spans)
    assert service.metrics.requests[TASKS, "POST", 5].count == 1


async def test_a_refused_submission_is_an_error_without_what_was_submitted(
    http: httpx.AsyncClient, tracing: Recording
) -> None:
    body = {"task_type": "a", "priority": "secret-level"}
    answer = await http.post(TASKS, json=body, headers={"traceparent": SAMPLED})

    sent, request = tracing.spans
    assert answer.status_code == 422
    assert sent.error is not None
    assert sent.error.kind == "unknown-priority"
    assert "secret" not in repr(tracing.spans)
    assert request.attributes["http.response.status_code"] == 422
