"""A collector that is away or hangs costs what does not fit, and nobody's time."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.stores import free_port
from tests.telemetry.processes import collector_of_others
from tests.telemetry.sink import Sink
from tideq.queue_core.telemetry.spans import INTERNAL, Shape, Span, SpanError
from tideq.queue_core.telemetry.trace_context import TraceParent
from tideq.telemetry.outlet import SpanQueue
from tideq.telemetry.setup import make_tracing

QUEUED = Shape("task.queued", INTERNAL)
SMALL = {"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10", "OTEL_BSP_SCHEDULE_DELAY": "50"}


def span(number: int) -> Span:
    context = TraceParent(f"{number + 1:032x}", f"{number + 1:016x}", 1)
    return Span(QUEUED, context, "", number, number + 1, {"tideq.task.attempt": number})


def outlet_to(url: str, **environ: str) -> SpanQueue:
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=1)
    return SpanQueue([exporter], Resource({"service.name": "tideq"}), {**SMALL, **environ})


@pytest.fixture
def outlet(sink: Sink) -> Iterator[SpanQueue]:
    outlet = outlet_to(sink.url)
    yield outlet
    outlet.close(0.2)


def test_everything_arrives_in_order(sink: Sink, outlet: SpanQueue) -> None:
    for number in range(95):
        outlet.take(span(number))

    seen = sink.wait(lambda spans: len(spans) >= 95)

    assert [each.attributes["tideq.task.attempt"] for each in seen] == list(range(95))
    assert {each.service for each in seen} == {"tideq"}
    assert (outlet.dropped_count, outlet.failed_count) == (0, 0)


def test_spans_of_the_sdk_go_the_same_way(sink: Sink, outlet: SpanQueue) -> None:
    provider = TracerProvider(resource=outlet.resource, shutdown_on_exit=False)
    provider.add_span_processor(outlet)

    with provider.get_tracer("application").start_as_current_span("work"):
        outlet.take(span(1))

    assert {(each.name, each.scope) for each in sink.wait(lambda spans: len(spans) >= 2)} == {
        ("work", "application"),
        ("task.queued", "tideq"),
    }


def test_spans_go_over_grpc_to_a_collector_of_others(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector_of_others(sink.url, tmp_path, "grpc") as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        tracing = make_tracing({**environ, **SMALL}, 100, "tideq")
        tracing.record(msgspec.structs.replace(span(7), error=SpanError("BROKEN", "no")))
        (seen,) = sink.wait(lambda spans: len(spans) >= 1)
        tracing.close()

    assert (seen.name, seen.service, seen.is_error) == ("task.queued", "tideq", True)
    assert seen.attributes == {"tideq.task.attempt": 7, "error.type": "BROKEN"}


def test_a_collector_that_hangs_costs_what_does_not_fit(sink: Sink, outlet: SpanQueue) -> None:
    sink.hangs = True

    for number in range(10_000):
        outlet.take(span(number))

    assert outlet.waiting_count <= 100
    assert outlet.dropped_count >= 10_000 - 100 - 10 * max(sink.request_count, 2)


def test_leaving_a_collector_that_hangs_takes_the_time_allowed(sink: Sink) -> None:
    sink.hangs = True
    outlet = outlet_to(sink.url)
    for number in range(100):
        outlet.take(span(number))

    outlet.close(0.2)

    assert outlet.waiting_count > 0, "it waited for ten exports of a second each"


def test_a_collector_that_is_away_is_tried_again(sink: Sink) -> None:
    exporter = Flaky()
    outlet = SpanQueue([exporter], Resource({}), SMALL)
    outlet.take(span(0))
    assert outlet.force_flush(5_000)
    exporter.is_away = False
    outlet.take(span(1))
    assert outlet.force_flush(5_000)

    assert (outlet.failed_count, outlet.sent_count) == (1, 1)
    assert [each.attributes for each in exporter.taken] == [{"tideq.task.attempt": 1}]
    outlet.close(1)


def test_what_comes_while_a_batch_is_sent_waits_for_the_next() -> None:
    exporter = Flaky(is_away=False)
    outlet = SpanQueue([exporter], Resource({}), {**SMALL, "OTEL_BSP_SCHEDULE_DELAY": "600000"})
    for number in range(25):
        outlet.take(span(number))
    exporter.wait(20)

    assert (exporter.sizes, outlet.waiting_count) == ([10, 10], 5)
    assert outlet.force_flush(5_000)
    assert exporter.sizes == [10, 10, 5]
    outlet.close(1)


def test_a_queue_of_one_batch_is_emptied_before_it_is_full() -> None:
    exporter = Flaky(is_away=False)
    sizes = {"OTEL_BSP_MAX_QUEUE_SIZE": "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10"}
    outlet = SpanQueue([exporter], Resource({}), {**sizes, "OTEL_BSP_SCHEDULE_DELAY": "600000"})
    for number in range(6):
        outlet.take(span(number))

    exporter.wait(6)

    assert outlet.dropped_count == 0
    outlet.close(1)


def test_what_is_left_over_is_sent_when_the_delay_is_over() -> None:
    exporter = Flaky(is_away=False)
    outlet = SpanQueue([exporter], Resource({}), SMALL)
    for number in range(13):
        outlet.take(span(number))

    exporter.wait(13)

    outlet.close(1)


def test_nothing_is_taken_after_closing(sink: Sink) -> None:
    outlet = outlet_to(sink.url)
    outlet.close(1)

    outlet.take(span(0))

    assert (outlet.has_room, outlet.waiting_count, outlet.dropped_count) == (False, 0, 1)


def test_nobody_listening_is_a_failure_like_any_other() -> None:
    outlet = outlet_to(f"http://127.0.0.1:{free_port()}")
    outlet.take(span(0))

    assert outlet.force_flush(20_000)
    assert outlet.failed_count == 1
    outlet.close(1)


class Flaky(SpanExporter):
    """Not the one for OTLP over HTTP: it is given the SDK's spans."""

    def __init__(self, *, is_away: bool = True) -> None:
        self.is_away = is_away
        self.taken: list[ReadableSpan] = []
        self.sizes: list[int] = []
        self._news = threading.Condition()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.is_away:
            raise ConnectionError("away")
        with self._news:
            self.taken += spans
            self.sizes.append(len(spans))
            self._news.notify_all()
        return SpanExportResult.SUCCESS

    def wait(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.taken) >= count, 30), f"only {self.sizes}"
