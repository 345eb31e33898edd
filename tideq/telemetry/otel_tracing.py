"""Tracing with OpenTelemetry: decides what is sampled, and puts recorded spans into the span queue."""

from collections.abc import Callable
from random import getrandbits

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, ProxyTracerProvider, set_span_in_context

from tideq.queue_core.telemetry.spans import Span
from tideq.queue_core.telemetry.trace_context import SAMPLED, TraceParent
from tideq.telemetry.outlet import CLOSE_SECONDS, SpanQueue
from tideq.telemetry.sampling import Samplers
from tideq.telemetry.sdk_spans import span_context

ONE_EACH = 1 << 64 | 1
"""The lowest bit of a trace's id and of a span's: neither may be zero."""


class OtelTracing:
    def __init__(self, span_queue: SpanQueue, samplers: Samplers) -> None:
        self.span_queue = span_queue
        self.record: Callable[[Span], None] = span_queue.take
        """Bound to the queue's own method, which saves a call for each span."""
        self._samplers = samplers

    @property
    def lost_count(self) -> int:
        return self.span_queue.dropped_count + self.span_queue.failed_count

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        """Follows the sampling flag of the parent, except where the configured sampler is not parent-based."""
        samplers = self._samplers
        if parent is None:
            # Both ids come from one random number, because this runs for every request.
            ids = f"{getrandbits(192) | ONE_EACH:048x}"
            trace_id, span_id = ids[:32], ids[32:]
            is_sampled = self._is_sampled(None, trace_id, name) if samplers.fixed is None else samplers.fixed
            return TraceParent(trace_id, span_id, SAMPLED if is_sampled else 0)
        span_id = f"{getrandbits(64) or 1:016x}"
        if samplers.follows_parents or samplers.fixed == parent.flags & SAMPLED:
            return TraceParent(parent.trace_id, span_id, parent.flags)
        is_sampled = self._is_sampled(parent, parent.trace_id, name)
        return TraceParent(parent.trace_id, span_id, parent.flags & ~SAMPLED | is_sampled)

    def charge(self, span_count: int) -> None:
        if self._samplers.limit is not None:
            self._samplers.limit.charge(span_count)

    @property
    def has_room(self) -> bool:
        return self.span_queue.has_room

    def miss(self, span_count: int) -> None:
        self.span_queue.dropped_count += span_count

    def close(self) -> None:
        self.span_queue.close(CLOSE_SECONDS)

    def serve_handlers(self) -> None:
        """Exports the spans of the application's code too, unless the application has set a tracer provider."""
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            sampler, resource = self._samplers.sampler, self.span_queue.resource
            provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(self.span_queue)
            trace.set_tracer_provider(provider)

    def _is_sampled(self, parent: TraceParent | None, trace_id: str, name: str) -> bool:
        if self._samplers.limit is not None and parent is None:
            return self._samplers.limit.take()
        if self._samplers.fixed is not None:
            return self._samplers.fixed
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(span_context(parent, is_remote=True)), context)
        result = self._samplers.sampler.should_sample(context, int(trace_id, 16), name)
        return result.decision is Decision.RECORD_AND_SAMPLE
