"""Tracing with OpenTelemetry's SDK: samples traces, and hands ended spans to the SDK's batch processor.

A trace that a caller began is sampled according to its flag. Traces that begin here are limited by default, because
ten spans a task would overload the collector of a busy queue and cost the service more than the tasks.
"""

import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    ProxyTracerProvider,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util.types import Attributes

from tideq.queue_core.telemetry.names import ERROR_TYPE, EXCEPTION_EVENT, EXCEPTION_MESSAGE, EXCEPTION_TYPE, SCOPE
from tideq.queue_core.telemetry.spans import Span
from tideq.queue_core.telemetry.trace_context import SAMPLED, TraceParent
from tideq.telemetry.span_queue import SpanQueue

KINDS = tuple(SpanKind)
UNSET = Status()


class OtelTracing:
    """`limit` is the sampler of new traces; without one, the sampler is as OTEL_TRACES_SAMPLER says."""

    def __init__(self, queue: SpanQueue, resource: Resource, limit: "TracesPerSecond | None") -> None:
        sampler = ParentBased(limit) if limit is not None else None
        self._provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(queue)
        self._queue = queue
        self._limit = limit
        self._missed_count = 0
        self._scope = InstrumentationScope(SCOPE)

    @property
    def lost_count(self) -> int:
        return self._missed_count + self._queue.dropped_count + self._queue.sender.failed_count

    @property
    def has_room(self) -> bool:
        return self._queue.has_room

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        """Follows the sampling flag of the parent, except where the configured sampler is not parent-based."""
        ids, context = self._provider.id_generator, Context()
        trace_id, flags = ids.generate_trace_id(), 0
        if parent is not None:
            remote = _span_context(parent, is_remote=True)
            trace_id, flags, context = (
                remote.trace_id,
                parent.flags,
                set_span_in_context(NonRecordingSpan(remote), context),
            )
        result = self._provider.sampler.should_sample(context, trace_id, name)
        is_sampled = result.decision is Decision.RECORD_AND_SAMPLE
        span_id = f"{ids.generate_span_id():016x}"
        return TraceParent(f"{trace_id:032x}", span_id, flags & ~SAMPLED | is_sampled)

    def charge(self, span_count: int) -> None:
        if self._limit is not None:
            self._limit.charge(span_count)

    def miss(self, span_count: int) -> None:
        self._missed_count += span_count

    def record(self, span: Span) -> None:
        if self._queue.has_room:
            self._queue.on_end(self._readable(span))
        else:
            self.miss(1)

    def close(self) -> None:
        self._queue.shutdown()

    def serve_handlers(self) -> None:
        """Exports the spans of the application's code too, unless the application has set a tracer provider."""
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            trace.set_tracer_provider(self._provider)

    def _readable(self, span: Span) -> ReadableSpan:
        error, attributes, events = span.error, span.attributes, ()
        if error is not None:
            attributes = {**attributes, ERROR_TYPE: error.kind}
            described = {EXCEPTION_TYPE: error.kind, EXCEPTION_MESSAGE: error.message}
            events = (Event(EXCEPTION_EVENT, described, span.ended_ns),)
        return ReadableSpan(
            name=span.name,
            context=_span_context(span.context, span.tracestate),
            parent=_span_context(span.context.child(span.parent_id)) if span.parent_id else None,
            resource=self._provider.resource,
            attributes=attributes,
            events=events,
            links=[Link(_span_context(link)) for link in span.links],
            kind=KINDS[span.kind],
            status=Status(StatusCode.ERROR, error.message) if error is not None else UNSET,
            start_time=span.began_ns,
            end_time=span.ended_ns,
            instrumentation_scope=self._scope,
        )


class TracesPerSecond(Sampler):
    """A token bucket of one second. A trace with more spans than expected is charged afterwards, and delays others."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._size = max(per_second, 1.0)
        self._tokens = self._size
        self._filled_at = clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        with self._lock:
            now = self._clock()
            self._tokens = min(self._tokens + (now - self._filled_at) * self._per_second, self._size)
            self._filled_at = now
            if self._tokens < 1 or not self._per_second:
                return False
            self._tokens -= 1
            return True

    def charge(self, count: int) -> None:
        with self._lock:
            self._tokens -= count

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        return SamplingResult(Decision.RECORD_AND_SAMPLE if self.take() else Decision.DROP)

    def get_description(self) -> str:
        return f"TracesPerSecond{{{self._per_second:g}}}"


def _span_context(context: TraceParent, tracestate: str = "", *, is_remote: bool = False) -> SpanContext:
    trace_id, span_id = int(context.trace_id, 16), int(context.span_id, 16)
    state = TraceState.from_header([tracestate]) if tracestate else None
    return SpanContext(trace_id, span_id, is_remote, TraceFlags(context.flags), state)
