"""Metrics over OTLP: the same numbers under the same names, decoded by others' classes, at nobody's cost."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.api.bench import until
from tests.observability.conftest import Whole
from tests.observability.metrics_sink import MetricsSink, collecting_metrics
from tests.observability.scrape import scrape
from tideq.api.metrics.queue_metrics import all_samples
from tideq.queue_core.background import background_task
from tideq.telemetry.metrics import Pusher, is_metered, push_for_ever

CONVENTIONAL = {
    "messaging.client.sent.messages": "send",
    "messaging.client.consumed.messages": "receive",
    "messaging.client.operation.duration": "receive",
    "messaging.process.duration": "process",
}


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsSink]:
    with collecting_metrics() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        yield sink


async def test_a_collector_is_told_what_prometheus_is_told(whole: Whole, sink: MetricsSink) -> None:
    await whole.kit.worker()
    await whole.bench.submit()
    await whole.bench.submit(priority="high")
    await whole.kit.complete(await whole.kit.started())
    name = whole.kit.settings.queue_name

    async def is_told() -> bool:
        return "messaging.process.duration" in sink.metrics

    async with background_task(push_for_ever(os.environ, "tideq", name, lambda: all_samples(whole.service))):
        await until(is_told)
    scraped = await scrape(whole.http)

    assert set(sink.paths) == {"/v1/metrics"}
    assert sink.resource["service.name"] == "tideq"
    assert sink.resource["deployment.environment.name"] == "test"
    assert sink.number("tideq_queue_tasks", queue=name, state="queued") == 1
    assert sink.number("tideq_tasks_submitted") == scraped.value("tideq_tasks_submitted_total") == 2
    told = {metric.removesuffix("_total") for metric in sink.metrics} - set(CONVENTIONAL)
    assert told == {family for family in scraped.families if not family.startswith("tideq_process_")} - UNKNOWN_HERE


UNKNOWN_HERE = {"tideq_queue_score_seconds_gcount", "tideq_queue_score_seconds_gsum"}
"""How Prometheus's text writes what a distribution of gauges adds up to."""


async def test_messaging_metrics_have_their_conventional_names(whole: Whole, sink: MetricsSink) -> None:
    worker_id = await whole.bench.register()
    await whole.bench.submit()
    task = await whole.bench.started(worker_id)
    await whole.bench.tell(worker_id, "result", task, status="completed", result={})

    async def is_told() -> bool:
        return set(CONVENTIONAL) <= set(sink.metrics)

    async with background_task(push_for_ever(os.environ, "tideq", "q", lambda: all_samples(whole.service))):
        await until(is_told)

    for metric, operation in CONVENTIONAL.items():
        for attributes, _ in sink.points(metric):
            assert attributes["messaging.system"] == "tideq"
            assert attributes["messaging.operation.name"] == operation
            assert attributes["messaging.destination.name"] == "q"
    ((_, executed),) = sink.points("messaging.process.duration")
    assert (executed.count, executed.HasField("min")) == (1, False)
    assert sink.metrics["messaging.process.duration"].unit == "s"


@pytest.mark.parametrize(
    ("environ", "is_on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "prometheus"}, False),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, True),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_only_who_asks_for_it_is_told(environ: dict[str, str], is_on: bool) -> None:
    assert is_metered(environ) == is_on


async def test_an_exporter_that_does_not_exist_is_named_and_takes_nothing_down_with_it(whole: Whole) -> None:
    with capture_logs() as logs:
        await push_for_ever({"OTEL_METRICS_EXPORTER": "carrier-pigeon"}, "t", "q", lambda: all_samples(whole.service))

    assert [line["error"] for line in logs] == ["OTEL_METRICS_EXPORTER: there is no exporter 'carrier-pigeon' here"]


def test_who_asks_for_nothing_imports_nothing() -> None:
    """The store's driver imports the SDK where there is one; exporters and all they need are ours to leave alone."""
    code = "import sys, tideq.cli.service_runner, tideq.cli.monitor; sys.exit('opentelemetry.exporter' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Stuck:
    """A collector that never answers."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.is_reached = threading.Event()
        self.let_go = threading.Event()

    def export(self, data: int) -> None:
        self.taken.append(data)
        self.is_reached.set()
        self.let_go.wait()

    def shutdown(self) -> None:
        pass


def test_a_collector_that_hangs_holds_up_nobody_and_keeps_only_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideq.telemetry.metrics.CLOSE_SECONDS", 0.05)
    stuck = Stuck()

    with Pusher(stuck) as pusher:
        pusher.push(0)
        stuck.is_reached.wait()
        for number in range(1, 1_000):
            pusher.push(number)

    assert stuck.taken == [0]
    waiting = pusher._latest  # pyright: ignore[reportPrivateUsage]
    assert (waiting.qsize(), waiting.get_nowait()) == (1, 999)
    stuck.let_go.set()
