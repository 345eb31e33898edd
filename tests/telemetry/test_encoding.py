"""What is written by hand is what OpenTelemetry's own classes read, and what its own exporter would have written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource

from tests.telemetry.sink import decoded
from tideq.queue_core.telemetry.names import SCOPE
from tideq.queue_core.telemetry.spans import Shape, Span, SpanError
from tideq.queue_core.telemetry.trace_context import TraceParent
from tideq.telemetry.otlp_encoding import field, request, span_field
from tideq.telemetry.outlet import poster, resource_message
from tideq.telemetry.sdk_spans import readable

RESOURCE = Resource({"service.name": "tideq", "process.pid": 7})
hexes = st.integers(1, 2**64 - 1).map(lambda number: f"{number:016x}")
traces = st.integers(1, 2**128 - 1).map(lambda number: f"{number:032x}")
texts = st.text(max_size=200).filter(lambda text: "\0" not in text)
values = st.one_of(texts, st.integers(-(2**63), 2**63 - 1))
spans = st.builds(
    Span,
    shape=st.builds(
        Shape, texts, st.integers(1, 5), st.dictionaries(texts.map("shared {}".format), values, max_size=5)
    ),
    context=st.builds(TraceParent, traces, hexes, st.sampled_from([1, 3])),
    parent_id=st.one_of(st.just(""), hexes),
    began_ns=st.integers(0, 2**63),
    ended_ns=st.integers(0, 2**63),
    own=st.dictionaries(texts.map("own {}".format), values, max_size=3),
    error=st.one_of(st.none(), st.builds(SpanError, texts, texts)),
    tracestate=st.sampled_from(["", "vendor=1", "vendor=1,other=2"]),
    links=st.lists(st.builds(TraceParent, traces, hexes, st.just(1)), max_size=3).map(tuple),
)


def written(*batch: Span) -> Any:
    body = request(resource_message(RESOURCE), field(1, SCOPE.encode()), map(span_field, batch))
    return ExportTraceServiceRequest.FromString(body)


@given(st.lists(spans, min_size=1, max_size=4))
def test_spans_are_read_as_the_exporter_would_have_written_them(batch: list[Span]) -> None:
    """Every field of every span, the resource and the scope; the order of attributes means nothing."""
    theirs = encode_spans([readable(span, RESOURCE) for span in batch])

    assert in_order(written(*batch)) == in_order(theirs)


def test_a_shape_is_written_once_and_spans_of_it_do_not_mix() -> None:
    shape, other = Shape("a", 1, {"b": "c"}), Shape("d", 2, {"b": "e"})
    contexts = [TraceParent("1" * 32, f"{number:016x}", 1) for number in range(1, 5)]
    batch = [
        Span(each, context, "", 1, 2, {"own": context.span_id})
        for each, context in zip((shape, other, shape, other), contexts, strict=True)
    ]

    written(*batch)
    kept = shape.encoded
    seen = list(decoded(written(*batch)))

    assert kept
    assert shape.encoded is kept
    assert [(span.name, span.attributes) for span in seen] == [
        (span.name, {**span.shape.attributes, "own": span.context.span_id}) for span in batch
    ]


@pytest.mark.parametrize("flags", [1, 3])
def test_a_traces_own_flags_are_told(flags: int) -> None:
    message = written(Span(Shape("a", 1), TraceParent("1" * 32, "2" * 16, flags), "", 1, 2))

    assert message.resource_spans[0].scope_spans[0].spans[0].flags & 0xFF == flags


def test_half_a_character_spoils_nothing() -> None:
    context = TraceParent("1" * 32, "2" * 16, 1)
    shape = Shape("a", 1, {"b": "\ud800"})
    span = Span(shape, context, "", 1, 2, {"c": "\ud800"}, SpanError("C", "\ud800"), "\ud800")

    (seen,) = decoded(written(span))

    assert (seen.name, seen.is_error) == ("a", True)


def key_of(attribute: Any) -> str:
    return attribute.key


def in_order(message: Any) -> Any:
    """Also without the traces' own flags, which the specification wants and the exporter leaves out."""
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                span.attributes.sort(key=key_of)
                span.status.SetInParent()
                span.flags &= ~0xFF
        resource_spans.resource.attributes.sort(key=key_of)
    return message


def test_the_exporter_lets_us_send_what_we_wrote() -> None:
    """By a name that is not public: should it go, everything works on, several times slower."""
    assert callable(poster(OTLPSpanExporter()))
