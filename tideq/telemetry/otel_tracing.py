"""Tracing with OpenTelemetry: what is sampled is decided here, what is recorded goes to the outlet."""

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
from tideq.telemetry.readable import span_context
from tideq.telemetry.sampling import Samplers

ONE_EACH = 1 << 64 | 1
"""The lowest bit of a trace's id and of a span's: neither may be zero."""


class OtelTracing:
    def __init__(self, span_queue: SpanQueue, samplers: Samplers) -> None:
        self.span_queue = span_queue
        self.record: Callable[[Span], None] = span_queue.take
        """The outlet's own, without a call in between."""
        self._samplers = samplers

    @property
    def lost_count(self) -> int:
        return self.span_queue.dropped_count + self.span_queue.failed_count

    def begin(self, parent: TraceParent | None, name: str) -> TraceParent:
        """Whoever began the trace decides; only samplers that say so by their name do not care."""
        samplers = self._samplers
        if parent is None:
            # Both ids of one number: this is done for every request.
            ids = f"{getrandbits(192) | ONE_EACH:048x}"
            trace_id, span_id = ids[:32], ids[32:]
            is_sampled = self._asks(None, trace_id, name) if samplers.fixed is None else samplers.fixed
            return TraceParent(trace_id, span_id, SAMPLED if is_sampled else 0)
        span_id = f"{getrandbits(64) or 1:016x}"
        if samplers.follows_parents or samplers.fixed == parent.flags & SAMPLED:
            return TraceParent(parent.trace_id, span_id, parent.flags)
        is_sampled = self._asks(parent, parent.trace_id, name)
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
        """Have the spans that this process's own code makes sent too, unless it has seen to that itself."""
        if isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            sampler, resource = self._samplers.sampler, self.span_queue.resource
            provider = TracerProvider(sampler=sampler, resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(self.span_queue)
            trace.set_tracer_provider(provider)

    def _asks(self, parent: TraceParent | None, trace_id: str, name: str) -> bool:
        if self._samplers.limit is not None and parent is None:
            return self._samplers.limit.take()
        if self._samplers.fixed is not None:
            return self._samplers.fixed
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(span_context(parent, is_remote=True)), context)
        result = self._samplers.sampler.should_sample(context, int(trace_id, 16), name)
        return result.decision is Decision.RECORD_AND_SAMPLE
