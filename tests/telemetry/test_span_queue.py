"""What is recorded reaches the collector as it was; one that is away or hangs costs what does not fit, and no time."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from tests.stores import free_port
from tests.telemetry.processes import collector_of_others
from tests.telemetry.sink import Sink
from tideq.queue_core.telemetry.spans import CONSUMER, INTERNAL, Span, SpanError
from tideq.queue_core.telemetry.trace_context import TraceParent
from tideq.telemetry.otel_tracing import OtelTracing
from tideq.telemetry.setup import make_tracing
from tideq.telemetry.span_queue import SpanQueue

RESOURCE = Resource({"service.name": "tideq"})
Record = Callable[[Span], None]
IN_A_FORK = """
import os
from opentelemetry.sdk.resources import Resource
from tests.telemetry.test_span_queue import Flaky, span
from tideq.telemetry.otel_tracing import OtelTracing
from tideq.telemetry.span_queue import SpanQueue

exporter = Flaky(is_away=False)
queue = SpanQueue([exporter], 10, 10, 600_000)
tracing = OtelTracing(queue, Resource({}), None)
for number in range(9):
    tracing.record(span(number))
if child := os.fork():
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
else:
    for number in range(9):
        tracing.record(span(number))
    tracing.close()
    os._exit(tracing.lost_count or len(exporter.taken) - 9)
"""


def span(number: int) -> Span:
    context = TraceParent(f"{number + 1:032x}", f"{number + 1:016x}", 1)
    return Span("task.queued", INTERNAL, context, "", number, number + 1, {"tideq.task.attempt": number})


def queue_to(*exporters: SpanExporter) -> SpanQueue:
    return SpanQueue(exporters, 100, 10, 50)


def record_in(queue: SpanQueue) -> Record:
    return OtelTracing(queue, RESOURCE, None).record


@pytest.fixture
def queue(sink: Sink) -> Iterator[SpanQueue]:
    queue = queue_to(over_http(sink.url))
    yield queue
    queue.close(0.2)


@pytest.fixture
def record(queue: SpanQueue) -> Record:
    return record_in(queue)


def over_http(url: str) -> SpanExporter:
    return OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=1)


def test_everything_arrives_in_order(sink: Sink, queue: SpanQueue, record: Record) -> None:
    for number in range(95):
        record(span(number))

    seen = sink.wait(lambda spans: len(spans) >= 95)

    assert [each.attributes["tideq.task.attempt"] for each in seen] == list(range(95))
    assert {(each.service, each.scope) for each in seen} == {("tideq", "tideq")}
    assert (queue.dropped_count, queue.sender.failed_count) == (0, 0)


def test_a_span_arrives_with_all_it_has(sink: Sink, record: Record) -> None:
    context, link = TraceParent("1" * 32, "2" * 16, 3), TraceParent("3" * 32, "4" * 16, 1)
    error = SpanError("BROKEN", "it broke")
    record(Span("work", CONSUMER, context, "5" * 16, 7_000, 9_000, {"a": "b", "c": 4}, error, "vendor=1", (link,)))

    (seen,) = sink.wait(lambda spans: len(spans) >= 1)

    assert (seen.name, seen.kind, seen.trace_id, seen.span_id, seen.parent_id) == (
        "work",
        5,
        "1" * 32,
        "2" * 16,
        "5" * 16,
    )
    assert (seen.began_ns, seen.ended_ns, seen.is_error) == (7_000, 9_000, True)
    assert seen.attributes == {"a": "b", "c": 4, "error.type": "BROKEN"}
    assert seen.events == [("exception", {"exception.type": "BROKEN", "exception.message": "it broke"})]
    assert seen.links == [(link.trace_id, link.span_id)]
    assert seen.tracestate == "vendor=1"


def test_spans_of_the_sdk_go_the_same_way(sink: Sink, queue: SpanQueue, record: Record) -> None:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(queue)

    with provider.get_tracer("application").start_as_current_span("work"):
        record(span(1))

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
        tracing = make_tracing({**environ, "OTEL_BSP_SCHEDULE_DELAY": "50"}, 100, "tideq")
        tracing.record(msgspec.structs.replace(span(7), error=SpanError("BROKEN", "no")))
        (seen,) = sink.wait(lambda spans: len(spans) >= 1)
        tracing.close()

    assert (seen.name, seen.service, seen.is_error) == ("task.queued", "tideq", True)
    assert seen.attributes == {"tideq.task.attempt": 7, "error.type": "BROKEN"}


def test_a_collector_that_hangs_costs_what_does_not_fit(sink: Sink, queue: SpanQueue) -> None:
    sink.hangs = True
    tracing = OtelTracing(queue, RESOURCE, None)

    for number in range(10_000):
        tracing.record(span(number))

    assert not tracing.has_room
    assert tracing.lost_count >= 10_000 - 100 - 10 * max(sink.request_count, 2)


def test_leaving_a_collector_that_hangs_takes_the_time_allowed(sink: Sink) -> None:
    sink.hangs = True
    queue = queue_to(over_http(sink.url))
    record = record_in(queue)
    for number in range(100):
        record(span(number))

    began = time.monotonic()
    with capture_logs() as logs:
        queue.close(0.2)

    assert time.monotonic() - began < 5, "it waited for ten exports of a second each"
    assert any("left behind" in line["event"] for line in logs)


def test_a_collector_that_is_away_is_tried_again_and_logged_once_each_way() -> None:
    exporter = Flaky()
    queue = queue_to(exporter)
    record = record_in(queue)
    with capture_logs() as logs:
        for number in range(2):
            record(span(number))
            queue.force_flush()
        exporter.is_away = False
        for number in range(2, 4):
            record(span(number))
            queue.force_flush()

    assert (queue.sender.failed_count, queue.sender.sent_count) == (2, 2)
    assert [each.attributes for each in exporter.taken] == [{"tideq.task.attempt": 2}, {"tideq.task.attempt": 3}]
    assert [line["event"] for line in logs if "deliver" in line["event"]] == [
        "spans cannot be delivered and are dropped",
        "spans are delivered again",
    ]
    queue.close(1)


def test_an_exporter_that_fails_keeps_nothing_from_the_next() -> None:
    away, well = Flaky(), Flaky(is_away=False)
    queue = queue_to(away, well)
    record_in(queue)(span(0))

    queue.close(5)

    assert (len(well.taken), queue.sender.failed_count) == (1, 1)


def test_nothing_is_taken_after_closing() -> None:
    queue = queue_to(Flaky(is_away=False))
    tracing = OtelTracing(queue, RESOURCE, None)
    tracing.close()

    tracing.record(span(0))

    assert (tracing.has_room, tracing.lost_count) == (False, 1)


def test_nobody_listening_is_a_failure_like_any_other() -> None:
    queue = queue_to(over_http(f"http://127.0.0.1:{free_port()}"))
    record_in(queue)(span(0))

    queue.force_flush()

    assert queue.sender.failed_count == 1
    queue.close(1)


def test_a_forked_process_has_an_empty_queue_that_is_emptied() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_FORK], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr


class Flaky(SpanExporter):
    def __init__(self, *, is_away: bool = True) -> None:
        self.is_away = is_away
        self.taken: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.is_away:
            raise ConnectionError("away")
        self.taken += spans
        return SpanExportResult.SUCCESS
