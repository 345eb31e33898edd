"""What is written by hand is what OpenTelemetry's own classes read, and what its own exporter would have written."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from tests.telemetry.sink import decoded
from tideq.queue_core.telemetry import SCOPE
from tideq.queue_core.trace_context import TraceParent
from tideq.queue_core.tracing import Span, SpanError
from tideq.telemetry.encoding import field, request, span_field
from tideq.telemetry.outlet import poster, resource_message
from tideq.telemetry.readable import readable

RESOURCE = Resource({"service.name": "tideq", "process.pid": 7})
hexes = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")
texts = st.text(max_size=200).filter(lambda text: "\0" not in text)
spans = st.builds(
    Span,
    name=texts,
    kind=st.integers(1, 5),
    context=st.builds(
        TraceParent, st.integers(1, 2**128 - 1).map(lambda n: f"{n:032x}"), hexes, st.sampled_from([1, 3])
    ),
    parent_id=st.one_of(st.just(""), hexes),
    began_ns=st.integers(0, 2**63),
    ended_ns=st.integers(0, 2**63),
    attributes=st.dictionaries(texts, st.one_of(texts, st.integers(-(2**63), 2**63 - 1)), max_size=5),
    error=st.one_of(st.none(), st.builds(SpanError, texts, texts)),
    tracestate=st.just(""),
)


def written(*batch: Span) -> Any:
    body = request(resource_message(RESOURCE), field(1, SCOPE.encode()), map(span_field, batch))
    return ExportTraceServiceRequest.FromString(body)


@given(st.lists(spans, max_size=4))
def test_spans_are_read_as_the_exporter_would_have_written_them(batch: list[Span]) -> None:
    theirs = encode_spans([readable(span, RESOURCE) for span in batch])

    assert list(decoded(written(*batch))) == list(decoded(theirs))


def test_half_a_character_spoils_nothing() -> None:
    context = TraceParent("1" * 32, "2" * 16, 1)
    span = Span("a", 1, context, "", 1, 2, {"b": "\ud800"}, SpanError("C", "\ud800"))

    (seen,) = decoded(written(span))

    assert (seen.name, seen.is_error) == ("a", True)


def test_the_exporter_lets_us_send_what_we_wrote() -> None:
    """By a name that is not public: should it go, everything works on, several times slower."""
    assert callable(poster(OTLPSpanExporter()))
