"""Converts spans to the SDK's ReadableSpan, for exporters other than OTLP over HTTP."""

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from tideq.queue_core.telemetry.names import ERROR_TYPE, EXCEPTION_EVENT, EXCEPTION_MESSAGE, EXCEPTION_TYPE, SCOPE
from tideq.queue_core.telemetry.spans import Span
from tideq.queue_core.telemetry.trace_context import TraceParent

KINDS = (SpanKind.INTERNAL, SpanKind.INTERNAL, SpanKind.SERVER, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.CONSUMER)


def readable(span: Span, resource: Resource) -> ReadableSpan:
    error = span.error
    attributes = {**span.attributes, ERROR_TYPE: error.kind} if error else dict(span.attributes)
    events = [_exception(error.kind, error.message, span.ended_ns)] if error else []
    return ReadableSpan(
        name=span.name,
        context=span_context(span.context, span.tracestate),
        parent=span_context(span.context.child(span.parent_id)) if span.parent_id else None,
        resource=resource,
        attributes=attributes,
        events=events,
        links=[Link(span_context(link)) for link in span.links],
        kind=KINDS[span.kind],
        status=Status(StatusCode.ERROR, error.message) if error else Status(),
        start_time=span.began_ns,
        end_time=span.ended_ns,
        instrumentation_scope=InstrumentationScope(SCOPE),
    )


def span_context(context: TraceParent, tracestate: str = "", *, is_remote: bool = False) -> SpanContext:
    trace_id, span_id = int(context.trace_id, 16), int(context.span_id, 16)
    state = TraceState.from_header([tracestate]) if tracestate else None
    return SpanContext(trace_id, span_id, is_remote, TraceFlags(context.flags), state)


def _exception(kind: str, message: str, at_ns: int) -> Event:
    return Event(EXCEPTION_EVENT, {EXCEPTION_TYPE: kind, EXCEPTION_MESSAGE: message}, at_ns)
