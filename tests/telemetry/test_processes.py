"""Several monitors tell everything once; a collector that hangs is nobody's trouble. With real processes."""

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.bench import Bench, held
from tests.api.running import Running, serving
from tests.stores import StoreUnderTest
from tests.telemetry.jaeger import complaints
from tests.telemetry.processes import monitor, observed
from tests.telemetry.sink import Sink
from tideq.queue_core.scripts.keys import Keys

STOP_SECONDS = 60
TASK_COUNT = 40


@pytest.fixture
def settings(store: StoreUnderTest, queue_name: str, sink: Sink) -> dict[str, str]:
    return observed(store.url, queue_name, sink.url, OTEL_EXPORTER_OTLP_TIMEOUT="10000")


@pytest.fixture
def server(settings: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    with serving(settings, tmp_path) as running:
        yield running


async def live(bench: Bench, count: int) -> None:
    """So many tasks from submission to result, ten at a time."""
    worker_id = await bench.register(capacity=100)
    for _ in range(count // 10):
        await bench.call("POST", "/api/v1/tasks/batch", {"tasks": [{"task_type": "a"}] * 10})
        got = await bench.sync(worker_id, available_capacity=10)
        holds = [held(task) for task in got["tasks"]]
        results = [{**hold, "status": "completed", "result": None} for hold in holds]
        said = await bench.sync(worker_id, starts=holds, results=results)
        assert all(outcome["ok"] for outcome in said["outcomes"])


async def test_two_monitors_tell_every_transition_once(
    server: Running, settings: dict[str, str], sink: Sink, tmp_path: Path, store: StoreUnderTest, queue_name: str
) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=40) as http:
        with monitor(settings, tmp_path, "one") as one, monitor(settings, tmp_path, "other") as other:
            await has_journal(store, queue_name)
            await live(Bench(http), TASK_COUNT)
            sink.wait(lambda spans: sum(span.name == "task.lifecycle" for span in spans) >= TASK_COUNT)
            for process in (one, other):
                process.send_signal(signal.SIGTERM)
                assert process.wait(STOP_SECONDS) == 0
            logs = [(tmp_path / f"{name}.log").read_text() for name in ("one", "other")]

    lives = [span for span in sink.spans if span.name.startswith("task.")]
    assert Counter(span.name for span in lives) == dict.fromkeys(
        ("task.queued", "task.assigned", "task.executing", "task.lifecycle"), TASK_COUNT
    )
    assert len({span.span_id for span in sink.spans}) == len(sink.spans)
    assert {span.service for span in lives} == {"tideq"}, "told as the monitor's, it would look as if that called"
    assert complaints(sink.spans) == []
    lines = [json.loads(line) for log in logs for line in log.splitlines() if line.startswith('{"event": "transition"')]
    assert len(lines) == len({(line["task_id"], line["to_state"]) for line in lines}) == TASK_COUNT * 4


async def test_a_collector_that_hangs_stops_neither_work_nor_leaving(
    settings: dict[str, str], sink: Sink, tmp_path: Path, store: StoreUnderTest, queue_name: str
) -> None:
    sink.hangs = True
    hurried = {**settings, "OTEL_BSP_MAX_QUEUE_SIZE": "20", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"}
    with serving(hurried, tmp_path) as server, monitor(hurried, tmp_path) as watching:
        async with httpx.AsyncClient(base_url=server.url, timeout=40) as http:
            await has_journal(store, queue_name)
            await live(Bench(http), 400)
            told = (await http.get("/metrics")).text
        lost = sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith("tideq_spans_dropped"))
        for process in (server.process, watching):
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0

    assert sink.request_count >= 1
    assert sink.spans == []
    # Three spans of each of forty rounds: the request, the batch sent, the batch received. What does not fit is gone.
    assert lost >= 3 * 40 - 20 - 10 * sink.request_count > 0


async def has_journal(store: StoreUnderTest, queue_name: str) -> None:
    """Somebody follows the outbox: what happens from now on is told."""
    client = store.client()
    while not await client.exists(Keys(queue_name).key("monitor_cursor")):
        pass
    await client.aclose()
